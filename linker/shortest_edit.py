"""Align two sequences by a shortest edit script. It matches the largest number of common elements in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn

# Maximum number of insertions and deletions. Time and memory grow with its square.
_MAX_DIFFERENCES = 500


@dataclass(frozen=True)
class CallOrder:
    """A thread's calls in call order, represented by name codes and sequence numbers."""

    name: IntColumn
    seq: IntColumn

    def __len__(self) -> int:
        return len(self.name)

    @staticmethod
    def of_names(name: IntColumn) -> CallOrder:
        return CallOrder(name, np.full(len(name), -1, np.int64))

    def slice(self, begin: int, end: int, step: int = 1) -> CallOrder:
        """Return the calls from `begin` to `end`, both counted from the front. Reverse them if `step` is −1."""
        part = slice(begin, end)
        return CallOrder(self.name[part][::step], self.seq[part][::step])


def shortest_edit(pattern: CallOrder, text: CallOrder, *, whole: bool = False) -> tuple[IntColumn, IntColumn]:
    """Return the positions that a shortest edit script from the start matches in both sequences (Myers 1986, greedy).
    Takes O(length · differences) time. The search stops after 500 insertions and deletions, and all later elements stay
    unmatched. If `whole` is set, the script covers both sequences completely. Otherwise, it ends when either ends."""
    n, m = len(pattern), len(text)
    a, sa, b, sb = pattern.name.tolist(), pattern.seq.tolist(), text.name.tolist(), text.seq.tolist()
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    best, done = (0, 0, 0), None
    for d in range(min(n + m, _MAX_DIFFERENCES) + 1):
        trail.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y] and (sa[x] == sb[y] or sa[x] < 0 or sb[y] < 0):
                x, y = x + 1, y + 1
            furthest[k] = x
            if x > n or y > m:
                continue
            if x + y > best[0] + best[1]:
                best = (x, y, d)
            if (x >= n and y >= m) if whole else (x >= n or y >= m):
                done = (x, y, d)
                break
        if done:
            break
    return _walk_back(trail, *(done or best))


def _walk_back(trail: list[dict[int, int]], x: int, y: int, d: int) -> tuple[IntColumn, IntColumn]:
    left: list[int] = []
    right: list[int] = []
    for step in range(d, 0, -1):
        furthest, k = trail[step], x - y
        down = k == -step or (k != step and furthest[k - 1] < furthest[k + 1])
        before_k = k + 1 if down else k - 1
        before_x = furthest[before_k]
        start_x = before_x if down else before_x + 1
        while x > start_x:
            x, y = x - 1, y - 1
            left.append(x)
            right.append(y)
        x, y = before_x, before_x - before_k
    head = np.arange(x)  # both sequences begin with these elements
    ours, theirs = (np.concatenate((head, np.array(side[::-1], np.int64))) for side in (left, right))
    return ours, theirs
