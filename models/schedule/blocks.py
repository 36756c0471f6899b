"""The pool of KV blocks: who holds which, and which prefixes can be shared.

A full block is known by the tokens in it and the block before it, exactly: its key is the node of
the prefix before it and its tokens, so no two prefixes are ever taken for one another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.schedule.sequence import ROOT, Node, Sequence

_Key = tuple[Node, tuple[int, ...]]


@dataclass(slots=True)
class _Block:
    holders: int = 0
    key: _Key | None = None
    node: int = ROOT


@dataclass(slots=True)
class BlockPool:
    """``count`` blocks of ``block_size`` tokens each; idle ones are reused oldest first."""

    count: int
    block_size: int
    prefix_cache: bool = True
    _blocks: list[_Block] = field(init=False)
    _blank: list[int] = field(init=False)
    _idle: dict[int, None] = field(init=False)  # nobody's, still holding a prefix; oldest first
    _known: dict[_Key, int] = field(init=False)
    _last_node: int = field(init=False, default=ROOT)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets every holder and every prefix."""
        self._blocks = [_Block() for _ in range(self.count)]
        self._blank = list(range(self.count - 1, -1, -1))
        self._idle = {}
        self._known = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._blank) + len(self._idle)

    @property
    def used(self) -> int:
        return self.count - self.free

    def needed(self, length: int) -> int:
        """Blocks that ``length`` tokens take."""
        return -(-length // self.block_size)

    def admit(self, sequence: Sequence) -> bool:
        """Gives a sequence blocks for all its tokens, shared ones first; all or nothing.

        Sets ``computed`` to what the shared blocks hold, always less than the length.
        """
        assert not sequence.blocks
        assert sequence.pending == 0
        found, node = self._match(sequence)
        revived = sum(block in self._idle for block in found)
        if self.needed(sequence.length) - len(found) > self.free - revived:
            return False
        for block in found:
            self._idle.pop(block, None)
            self._blocks[block].holders += 1
        sequence.blocks.extend(found)
        sequence.computed = len(found) * self.block_size
        sequence.registered, sequence.node = len(found), node
        return self.grow(sequence, sequence.length)

    def grow(self, sequence: Sequence, length: int) -> bool:
        """Makes a sequence's blocks cover ``length`` tokens; all or nothing."""
        missing = self.needed(length) - len(sequence.blocks)
        if missing > self.free:
            return False
        for _ in range(missing):
            sequence.blocks.append(self._take())
        return True

    def register(self, sequence: Sequence) -> None:
        """Offers a sequence's full blocks, as far as computed and known here, for sharing."""
        if not self.prefix_cache:
            return
        size = self.block_size
        full = min(sequence.computed, len(sequence.tokens)) // size
        for index in range(sequence.registered, full):
            tokens = tuple(sequence.tokens[index * size : (index + 1) * size])
            sequence.node = self._node(sequence.blocks[index], (sequence.node, tokens))
        sequence.registered = full

    def release(self, sequence: Sequence) -> None:
        """Takes all blocks back. The last ones are reused first, so prefixes outlive their ends."""
        for block in reversed(sequence.blocks):
            self._drop(block)
        sequence.blocks.clear()
        sequence.computed = sequence.registered = 0
        sequence.node = sequence.root

    def forget(self) -> int:
        """Nothing that is held now is found by whoever comes later; how many prefixes there were.

        Who runs goes on, and keeps what it shares.
        """
        forgotten = len(self._known)
        for entry in self._blocks:
            entry.key = None
        self._blank.extend(self._idle)
        self._idle.clear()
        self._known.clear()
        return forgotten

    def check(self) -> None:
        """Asserts that with nothing running every block is blank, or idle with its prefix known."""
        assert self.free == self.count, f"{self.used} of {self.count} blocks leaked"
        assert len(self._known) == len(self._idle), "prefixes and idle blocks differ"

    def _match(self, sequence: Sequence) -> tuple[list[int], Node]:
        found: list[int] = []
        node = sequence.root
        if not self.prefix_cache or sequence.unscored:
            return found, node
        tokens = sequence.tokens
        size = self.block_size
        for start in range(0, len(tokens) - size, size):  # one token is always left to compute
            block = self._known.get((node, tuple(tokens[start : start + size])))
            if block is None:
                break
            found.append(block)
            node = self._blocks[block].node
        return found, node

    def _node(self, block: int, key: _Key) -> int:
        known = self._known.get(key)
        if known is not None:
            return self._blocks[known].node
        self._last_node += 1
        self._known[key] = block
        self._blocks[block].key = key
        self._blocks[block].node = self._last_node
        return self._last_node

    def _take(self) -> int:
        if self._blank:
            block = self._blank.pop()
        else:
            block = next(iter(self._idle))
            del self._idle[block]
            self._forget(block)
        self._blocks[block].holders = 1
        return block

    def _forget(self, block: int) -> None:
        key = self._blocks[block].key
        assert key is not None
        del self._known[key]
        self._blocks[block].key = None

    def _drop(self, block: int) -> None:
        entry = self._blocks[block]
        entry.holders -= 1
        assert entry.holders >= 0
        if entry.holders:
            return
        if entry.key is None:
            self._blank.append(block)
        else:
            self._idle[block] = None
