"""A running experiment on disk, so that a killed one goes on where it was.

One file, replaced in one step: a reader finds the old state or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.arrays import JaxArray, PyTree
from fedrank.core.errors import RunError
from fedrank.core.lazy import jax
from fedrank.core.native import map_arrays
from fedrank.core.trees import Json

_VERSION = 1
#: Errors of the standard library and of NumPy for a file that is cut or holds something else.
_DAMAGE = (OSError, ValueError, LookupError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
#: Fields that say how data is called or where it comes from, not what it is.
_CALLED = ("name", "notes", "citation")


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace a file in one step.

    Args:
        path: The file; its folder is made if it is not there.
        data: Its content.
        mode: Who may read it, where the process's mask allows it.

    Raises:
        RunError: The disk is full or the folder cannot be written; the old file is still there.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _settle(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # a file system that nothing can be written to
            partial.unlink(missing_ok=True)
        raise RunError(
            f"{path}: cannot be written ({error.strerror or error}). What was there before is untouched; make room or "
            "mend the permissions, then go on."
        ) from error


def _settle(folder: Path) -> None:
    """Have the folder's new entry survive a power cut, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def lock_folder(folder: Path, doing: str, *, wait: float = 0.0, name: str = ".lock") -> Iterator[None]:
    """Use a folder exclusively; the lock of a process that was killed is free again.

    Args:
        folder: The folder, which is there.
        doing: What another process is doing there, for the error.
        wait: Seconds to wait for it.
        name: File of the lock.

    Raises:
        RunError: Another process has the folder for longer, or its lock cannot be made.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / name, timeout=wait)
    try:
        lock.acquire()
    except Timeout as error:
        waited = f" for more than {wait:g} s" if wait else ""
        raise RunError(f"{folder}: another process {doing}{waited}. Wait until it has ended, or end it.") from error
    except OSError as error:
        raise RunError(f"{folder}: cannot be locked ({error.strerror or error}). Mend the permissions.") from error
    try:
        yield
    finally:
        lock.release()


def save(path: Path, tree: PyTree, about: dict[str, Json]) -> None:
    """Write a pytree of arrays.

    Args:
        path: The file (``.npz``).
        tree: Arrays.
        about: What it is, JSON-able; must be the same when it is loaded.
    """
    write_atomically(path, pack_arrays(tree, about))


def pack_arrays(tree: PyTree, about: dict[str, Json]) -> bytes:
    """The bytes that :func:`save` writes."""
    leaves = [plain_array(leaf) for leaf in leaves_of(tree)]
    buffer = io.BytesIO()
    header = np.frombuffer(json.dumps({"version": _VERSION, **about}).encode(), np.uint8)
    np.savez(buffer, header=header, **{f"leaf{i}": leaf for i, leaf in enumerate(leaves)})  # type: ignore[arg-type]
    return buffer.getvalue()


def leaves_of(tree: PyTree) -> list[PyTree]:
    """The arrays of a pytree in order; one that needs JAX to be taken apart comes from a run that has loaded it."""
    leaves: list[PyTree] = []
    map_arrays(leaves.append, tree)
    return leaves


def tree_like(tree: PyTree, arrays: Iterable[np.ndarray]) -> PyTree:
    """A pytree of plain arrays in the order of :func:`leaves_of`, each restored as the one of ``tree`` at its place."""
    left = iter([_restore(array, leaf) for array, leaf in zip(arrays, leaves_of(tree), strict=True)])
    return map_arrays(lambda _: next(left), tree)


def plain_array(leaf: PyTree) -> np.ndarray:
    """An array as a file holds it; of random keys, their words."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _restore(found: np.ndarray, like: PyTree) -> PyTree:
    """An array as the one it is like: of JAX or NumPy, or random keys."""
    if _is_key(like):
        return jax.random.wrap_key_data(jax.numpy.asarray(found), impl=jax.random.key_impl(like))
    return jax.numpy.asarray(found) if isinstance(like, JaxArray) else found


def _is_key(leaf: PyTree) -> bool:
    return isinstance(leaf, JaxArray) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def load(path: Path, like: PyTree) -> tuple[PyTree, dict[str, Json]]:
    """Read what :func:`save` wrote.

    Args:
        path: The file.
        like: A pytree of the same structure and shapes, with arrays of JAX or NumPy as those that are returned.

    Returns:
        The pytree, and ``about``.

    Raises:
        RunError: Cut, damaged, of another version or of another shape.
    """
    return unpack_arrays(path, like, str(path))


def unpack_arrays(source: Path | io.BytesIO, like: PyTree, path: str) -> tuple[PyTree, dict[str, Json]]:
    """As :func:`load`, from a file or from bytes that messages call ``path``."""
    try:
        with np.load(source, allow_pickle=False) as file:
            about = json.loads(bytes(file["header"]))
            found = [file[f"leaf{i}"] for i in range(len(file.files) - 1)]
            shapes = [leaf.shape for leaf in found]
            state = tree_like(like, found)
    # A flipped bit may make the archive look encrypted, or ask for what zipfile does not know.
    except _DAMAGE as error:
        raise RunError(
            f"{path}: not a checkpoint, or a cut one ({error}). Delete it to start the run again."
        ) from error
    if about.pop("version", None) != _VERSION:
        raise RunError(f"{path}: written by another version of this program. Delete it to start the run again.")
    if shapes != [plain_array(leaf).shape for leaf in leaves_of(like)]:
        raise RunError(f"{path}: belongs to another configuration (its arrays have other shapes).")
    return state, about


def digest_of(data: object) -> str:
    """A digest of the numbers and words in nested data, by which a checkpoint knows what it belongs to.

    Args:
        data: Arrays, sparse matrices, numbers and text, in dataclasses, tuples, lists and dictionaries. What data is
            called (:data:`_CALLED`) is left out: a file may move.
    """
    total = hashlib.blake2b(digest_size=16)
    _add(total, data)
    return total.hexdigest()


def _add(total: Any, part_of: object) -> None:
    """Add data to a digest, each part with its type and its length, so that parts cannot be taken for others."""
    data: Any = part_of
    if dataclasses.is_dataclass(part_of) and not isinstance(part_of, type):
        data = {f.name: getattr(part_of, f.name) for f in dataclasses.fields(part_of) if f.name not in _CALLED}
    elif hasattr(data, "indptr") and hasattr(data, "indices"):
        data = {"shape": data.shape, "data": data.data, "indices": data.indices, "indptr": data.indptr}
    if isinstance(data, Mapping):
        data = [part for pair in data.items() for part in pair]
    if isinstance(data, list | tuple):
        total.update(f"{len(data)} parts;".encode())
        for part in data:
            _add(total, part)
    elif hasattr(data, "__array__"):
        array = np.ascontiguousarray(plain_array(data))
        if array.dtype.hasobject:
            _add(total, array.tolist())
            return
        total.update(f"{array.dtype.str}{array.shape};".encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    elif data is None or isinstance(data, bool | int | float | str | bytes):
        text = repr(data).encode()
        total.update(f"{type(data).__name__}{len(text)};".encode())
        total.update(text)
    else:
        total.update(f"{type(data).__qualname__};".encode())
        _add(total, getattr(data, "__dict__", None))
