import json

import pytest

from bert.training.cluster import Cluster, expand, find_cluster, slurm_port

WORKERS = ("host1:2222", "host2:2223", "host3:2222")


def tf_config(kind="worker", index=1, **jobs):
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})}


def slurm(**values):
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_PROCID": "2",
        "SLURM_NTASKS": "4",
        "SLURM_STEP_NODELIST": "gpu[08-10]",
        "SLURM_STEP_TASKS_PER_NODE": "1,2,1",
        **values,
    }


LIST = {"BERT_WORKERS": "host1:2222,host2:2223,host3:2222"}


@pytest.mark.parametrize(
    "environment",
    [
        tf_config(worker=WORKERS),
        tf_config(worker=WORKERS, index="1"),
        tf_config(worker=WORKERS, evaluator=["a:1"], ps=["b:1"]),
        tf_config(chief=WORKERS[:1], worker=WORKERS[1:], index=0),
        {**LIST, "BERT_WORKER": "1"},
        {**LIST, "JOB_COMPLETION_INDEX": "1"},
        # Said for this, it goes before what Kubernetes sets.
        {**LIST, "BERT_WORKER": "1", "JOB_COMPLETION_INDEX": "2"},
        # Within a job of SLURM, a launcher starts workers of its own.
        {**slurm(), **tf_config(worker=WORKERS)},
    ],
)
def test_workers_and_the_number_of_this_one_are_found(environment):
    assert find_cluster(environment) == Cluster(WORKERS, 1)


def test_addresses_of_ipv6_are_no_ranges_of_numbers():
    workers = ("[::1]:2222", "[fe80::1%eth0]:2222", "node1:2222")
    found = find_cluster({"BERT_WORKERS": ",".join(workers), "BERT_WORKER": "1"})
    assert found == Cluster(workers, 1)
    assert found.address(1) == ("fe80::1%eth0", 2222)


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_worker_without_a_cluster_is_warned_and_trains_alone(environment, log):
    assert find_cluster(environment) is None
    [message] = log.messages
    sources = "TF_CONFIG, BERT_WORKERS, SLURM_STEP_NODELIST"
    assert f"none of {sources} names other workers: THIS PROCESS" in message


def test_worker_of_a_cluster_of_one_is_warned(log):
    assert find_cluster({"BERT_WORKERS": "host1:2222", "BERT_WORKER": "0"}).index == 0
    [message] = log.messages
    assert "BERT_WORKERS names a single worker: THIS PROCESS TRAINS ALONE" in message


def test_chief_is_the_first():
    environment = tf_config("chief", 0, chief=WORKERS[:1], worker=WORKERS[1:])
    assert find_cluster(environment) == Cluster(WORKERS, 0)
    assert Cluster(WORKERS, 0).name(0) == "worker 0 (the chief) at host1:2222"


def test_tasks_of_slurm_are_numbered_across_nodes():
    first = slurm_port(4711)
    found = find_cluster(slurm())
    nodes = ("gpu08", "gpu09", "gpu09", "gpu10")
    assert found == Cluster(
        tuple(f"{n}:{first + i}" for n, i in zip(nodes, (0, 0, 1, 0), strict=True)), 2
    )
    even = find_cluster(
        slurm(SLURM_STEP_NODELIST="a,b", SLURM_STEP_TASKS_PER_NODE="2(x2)", SLURM_PROCID="0")
    )
    assert even.workers == (f"a:{first}", f"a:{first + 1}", f"b:{first}", f"b:{first + 1}")


def test_consecutive_jobs_of_slurm_share_no_port():
    taken = [{slurm_port(job) + local for local in range(64)} for job in range(100000, 100050)]
    assert len(set.union(*taken)) == 50 * 64
    assert min(min(each) for each in taken) >= 10000
    # Above begin the ports that systems give to outgoing connections.
    assert max(max(each) for each in taken) < 32768


def test_pods_of_kubernetes_are_written_as_one_name():
    environment = {
        "BERT_WORKERS": "pretrain-[0-11].pretrain:2222",
        "JOB_COMPLETION_INDEX": "11",
    }
    found = find_cluster(environment)
    assert found.workers == tuple(f"pretrain-{i}.pretrain:2222" for i in range(12))
    assert found.index == 11


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10],login", ["n08", "n09", "n10", "login"]),
        ("r[1-2]n[0-1]-ib", ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("a[1],b[2-3]:22", ["a1", "b2:22", "b3:22"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, names):
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[]", "n[3-1]", "n[a-b]", "n]1[", "a,,b", "n[[1]]"])
def test_lists_of_nodes_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"Received '.+'\.$"):
        expand(text)


@pytest.mark.parametrize(
    "environment",
    [
        {"BERT_WORKERS": "node[1-99999999999]", "BERT_WORKER": "0"},
        {"BERT_WORKERS": "r[1-9999]n[1-9999]g[1-9999]", "BERT_WORKER": "0"},
        {"BERT_WORKERS": ",".join(["n[1-9999]"] * 9), "BERT_WORKER": "0"},
        slurm(SLURM_STEP_NODELIST="gpu[0-99999999999]"),
        slurm(SLURM_STEP_TASKS_PER_NODE="1(x99999999999)"),
    ],
)
def test_lists_of_more_workers_than_ever_train_together_are_refused_at_once(environment):
    with pytest.raises(ValueError, match="must be at most 16384 workers"):
        find_cluster(environment)


def test_workers_of_a_machine_have_loopback_addresses():
    for workers in [
        ("[::ffff:127.0.0.1]:2222",),
        ("localhost:1", "localhost:2"),
        ("127.0.0.1:1", "127.0.0.2:1"),
        ("::1:1",),
    ]:
        assert Cluster(workers, 0).is_local
    for other in ("host1:1", "10.0.0.1:1", "0.0.0.0:1", "localhost.example.com:1", "::2:1"):
        assert not Cluster(("localhost:1", other), 0).is_local


def test_tf_config_is_read_as_it_is_written():
    cluster = Cluster(WORKERS, 2)
    assert find_cluster({"TF_CONFIG": cluster.tf_config()}) == cluster


@pytest.mark.parametrize(
    ("environment", "wrong"),
    [
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"}, "must be started by `srun`"),
        ({"TF_CONFIG": "{"}, r"TF_CONFIG: It must be JSON such as .* Received '\{'\."),
        ({"TF_CONFIG": "[]"}, r"TF_CONFIG: It must be JSON such as .* Received '\[\]'\."),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "TF_CONFIG: It must be JSON"),
        (tf_config(worker=WORKERS, index=3), "TF_CONFIG: It must list all workers"),
        (tf_config(["worker"], worker=WORKERS), "TF_CONFIG: It must list all workers"),
        (tf_config(worker=WORKERS, index=1e999), "TF_CONFIG: It must be JSON such as"),
        (tf_config("evaluator", 0, worker=WORKERS), "TF_CONFIG: It must list all workers"),
        (tf_config("ps", 0, worker=WORKERS, ps=["a:1"]), "TF_CONFIG: It must list all workers"),
        (tf_config(worker=["host1", "host2:1"]), "addresses such as host1:2222. Received 'host1'"),
        (tf_config(worker=["a:1", "a:1"]), "'a:1' is twice"),
        (LIST, r"BERT_WORKERS: `BERT_WORKER` must be set to a number from 0. Received ''\."),
        ({**LIST, "BERT_WORKER": "one"}, "must be set to a number from 0. Received 'one'"),
        ({**LIST, "BERT_WORKER": "3"}, "from 0 to 2, for there are 3. Received 3"),
        ({"BERT_WORKERS": "a[1-2", "BERT_WORKER": "0"}, r"BERT_WORKERS: It must be a list"),
        ({"BERT_WORKERS": "a:0", "BERT_WORKER": "0"}, "Received 'a:0'"),
        ({"BERT_WORKERS": "x[1][::1]:2", "BERT_WORKER": "0"}, r"Received 'x1\[::1\]:2'"),
        # One worker alone, if a space did not count.
        ({"BERT_WORKERS": "a:1 b:2", "BERT_WORKER": "0"}, "Received 'a:1 b:2'"),
        ({"TF_CONFIG": "[" * 100_000}, "TF_CONFIG: It must be JSON such as"),
        (slurm(SLURM_NTASKS="5"), "give the 5 tasks of SLURM_NTASKS to the 3 nodes"),
        (slurm(SLURM_STEP_NODELIST="a,b"), "give the 4 tasks of SLURM_NTASKS to the 2 nodes"),
        (slurm(SLURM_STEP_TASKS_PER_NODE="1;2"), "such as 2"),
        (slurm(SLURM_PROCID="4"), "from 0 to 3, for there are 4. Received 4"),
        (slurm(SLURM_PROCID=""), "`SLURM_PROCID` must be set"),
        (slurm(SLURM_DISTRIBUTION="cyclic"), "in blocks.*Received 'cyclic'"),
    ],
)
def test_malformed_environments_are_refused(environment, wrong):
    with pytest.raises(ValueError, match=wrong):
        find_cluster(environment)
