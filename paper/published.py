"""The paper's own numbers: Devlin et al., 2018, https://arxiv.org/abs/1810.04805v2."""

from collections.abc import Mapping

Values = Mapping[str, float]

# Table 1, of the test sets by GLUE's server: F1 of MRPC, Spearman's rank correlation of STS-B,
# accuracy of the others; of CoLA, Matthews' correlation.
GLUE: Mapping[str, Values] = {
    "OpenAI GPT": {"SST-2": 91.3, "CoLA": 45.4, "STS-B": 80.0, "MRPC": 82.3, "RTE": 56.0},
    "BERT Base": {"SST-2": 93.5, "CoLA": 52.1, "STS-B": 85.8, "MRPC": 88.9, "RTE": 66.4},
    "BERT Large": {"SST-2": 94.9, "CoLA": 60.5, "STS-B": 86.5, "MRPC": 89.3, "RTE": 70.1},
}

# Table 5, of the dev sets: accuracies, and F1 of SQuAD.
OBJECTIVES: Mapping[str, Values] = {
    "BERT Base": {"MRPC": 86.7, "SST-2": 92.7, "SQuAD": 88.5},
    "No NSP": {"MRPC": 86.5, "SST-2": 92.6, "SQuAD": 87.9},
    "LTR & No NSP": {"MRPC": 77.5, "SST-2": 92.1, "SQuAD": 77.8},
    "+ BiLSTM": {"MRPC": 75.7, "SST-2": 91.6, "SQuAD": 84.9},
}

# Table 6, without its row of 12 layers, 1024 wide: perplexity of held-out text, accuracies.
SIZES: Mapping[str, Values] = {
    "L=3 H=768 A=12": {"perplexity": 5.84, "MRPC": 79.8, "SST-2": 88.4},
    "L=6 H=768 A=3": {"perplexity": 5.24, "MRPC": 82.2, "SST-2": 90.7},
    "L=6 H=768 A=12": {"perplexity": 4.68, "MRPC": 84.8, "SST-2": 91.3},
    "L=12 H=768 A=12": {"perplexity": 3.99, "MRPC": 86.7, "SST-2": 92.9},
    "L=24 H=1024 A=16": {"perplexity": 3.23, "MRPC": 87.8, "SST-2": 93.7},
}

# Table 7: F1 of CoNLL-2003, dev and test where it has both.
NAMES: Mapping[str, Values] = {
    "ELMo": {"dev": 95.7, "test": 92.2},
    "BERT Base, fine-tuned": {"dev": 96.4, "test": 92.4},
    "Embeddings": {"dev": 91.0},
    "Second-to-last hidden": {"dev": 95.6},
    "Last hidden": {"dev": 94.9},
    "Weighted sum of last four": {"dev": 95.9},
    "Concatenation of last four": {"dev": 96.1},
    "Weighted sum of all 12 layers": {"dev": 95.5},
}

# Table 8, of the dev sets: accuracy of MNLI fine-tuned, F1 of CoNLL-2003 fine-tuned and with frozen
# features (the last four layers side by side).
MASKS: Mapping[str, Values] = {
    "80,10,10": {"MNLI": 84.2, "tuned": 95.4, "features": 94.9},
    "100,0,0": {"MNLI": 84.3, "tuned": 94.9, "features": 94.0},
    "80,0,20": {"MNLI": 84.1, "tuned": 95.2, "features": 94.6},
    "80,20,0": {"MNLI": 84.4, "tuned": 95.2, "features": 94.7},
    "0,20,80": {"MNLI": 83.7, "tuned": 94.8, "features": 94.6},
    "0,0,100": {"MNLI": 83.6, "tuned": 94.9, "features": 94.6},
}

# Table 1, of all its nine tasks, in its order.
GLUE_ORDER = ("SST-2", "CoLA", "STS-B", "MRPC", "RTE")
