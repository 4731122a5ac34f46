"""What the loader's objects have in common: each holds memory of an engine until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self


class Closing(ABC):
    """A context manager that is closed once. A copy would free the same memory again, so there is none."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be copied or pickled: make another one, in each process its own")
