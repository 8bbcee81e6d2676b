"""Work that several runs share: each does a part of it, and the parts joined are the whole."""

import dataclasses
import re

from bert.options import option


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of the work.

    Attributes:
      number: Which, from 1.
      count: How many there are.
    """

    number: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether its output begins the whole, with a header if that has one."""
        return self.number == 1

    def of(self, num_items: int, size: int) -> range:
        """Returns the places of its items, where chunks of so many stay whole.

        The parts differ by one chunk at most, so that some are empty where there are few chunks.
        """
        start, stop = (
            min(size * self._chunks_before(number, -(-num_items // size)), num_items)
            for number in (self.number - 1, self.number)
        )
        return range(start, stop)

    def pick(self, num_chunks: int) -> range:
        """Returns which of so many chunks are its own."""
        return self.of(num_chunks, 1)

    def _chunks_before(self, number: int, num_chunks: int) -> int:
        # Rounded up, so that it is the last ones that may be empty.
        return -(-num_chunks * number // self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """The flag of every script whose work several runs may share."""

    GROUP = "devices"

    shard: str = option(
        "",
        "Process only part k of n, given as k/n, from 1/n to n/n; run each part separately, with "
        "its own output. join_shards.py then joins the outputs, in order, into what a single run "
        "writes, byte for byte.",
    )

    @property
    def part(self) -> Shard | None:
        """The part to do, None for all.

        Raises:
          ValueError: where there is no such part.
        """
        if not self.shard:
            return None
        match = re.fullmatch("([0-9]+)/([0-9]+)", self.shard, re.ASCII)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(
                "`--shard` must be k/n, the k-th of n parts, from 1/n to n/n. Received "
                f"{self.shard!r}."
            )
        return Shard(int(match[1]), int(match[2]))
