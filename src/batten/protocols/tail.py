"""The end of a growing text, for readers that need no more of it."""

from collections import deque


class Tail:
    """Keeps the last characters: bounded, joined when read."""

    def __init__(self, most: int) -> None:
        self._most = max(0, most)
        self._parts: deque[str] = deque()
        self._size = 0
        self.cut = False
        """Whether the beginning was dropped."""

    def add(self, text: str) -> None:
        if len(text) > self._most:
            text, self.cut = text[len(text) - self._most :], True
        self._parts.append(text)
        self._size += len(text)
        while self._parts and self._size - len(self._parts[0]) >= self._most:
            self._size -= len(self._parts.popleft())
            self.cut = True

    def text(self) -> str:
        whole = "".join(self._parts)
        self.cut = self.cut or len(whole) > self._most
        return whole[max(0, len(whole) - self._most) :]
