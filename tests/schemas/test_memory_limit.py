"""What this process may take, by made files of the system."""

import signal
from pathlib import Path

import pytest
from etplus.schemas.text import memory_limit
from etplus.schemas.text.memory_limit import LIMIT, Expansion, available_memory, or_raise_limit, require_memory
from etplus.trace.errors import TraceFormatError, UsageError

KB, PAGES = 1024, 4096


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GB, 2 GB of which are free; this process has 100 pages."""
    for name in ("_PROC", "_CGROUPS"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(memory_limit, name, tmp_path / name)
    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": PAGES, "SC_PHYS_PAGES": 10_000}[name])
    monkeypatch.setattr(memory_limit, "_address_space", lambda: iter(()))
    (tmp_path / "_PROC" / "self").mkdir()
    write(tmp_path / "_PROC" / "self" / "statm", "500 100 50 10 0 40 0")
    known = "MemTotal: 8000000 kB\nMemAvailable: 2000000 kB\nSwapTotal: 5 kB\nodd\nx: y\n"
    write(tmp_path / "_PROC" / "meminfo", known)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_available_memory_is_that_of_meminfo_or_half_of_all_pages(system: Path) -> None:
    assert available_memory() == 2_000_000 * KB
    assert list(memory_limit._totals()) == [memory_limit._UNLIMITED, 8_000_005 * KB]
    write(system / "_PROC" / "meminfo", "MemTotal: 8000000 kB\n")
    assert available_memory() == 10_000 * PAGES // 2 and list(memory_limit._totals())[1] == 8_000_000 * KB
    (system / "_PROC" / "meminfo").unlink()
    assert available_memory() == 10_000 * PAGES // 2


@pytest.mark.parametrize(
    ("limit", "used"),
    [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")],
)
def test_memory_is_capped_by_what_a_container_has_left(system: Path, limit: str, used: str) -> None:
    groups = system / "_CGROUPS"
    write(groups / limit, "1000000\n")
    assert available_memory() == 2_000_000 * KB, "without what is used"
    write(groups / used, "300000\n")
    assert available_memory() == 700_000 and list(memory_limit._totals())[-1] == 1_000_000
    write((groups / limit).parent / "memory.stat", "inactive_file 100000\nother 5\n")
    assert available_memory() == 800_000
    write(groups / used, "3000000\n")
    assert available_memory() == 0
    write(groups / limit, "max\n")
    assert available_memory() == 2_000_000 * KB


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000000", 10**6), ("900k", 900_000), ("2 MB", 2_000_000), ("1gb", 10**9), ("1 KiB", 1024), ("2mi", 2 << 20),
     ("1.5GiB", 3 << 29), ("1t", 10**12), ("1TiB", 1 << 40), ("", 1 << 62), (" ", 1 << 62), ("999999999t", 1 << 62)],
)  # fmt: skip
def test_a_limit_of_any_unit_caps_memory(system: Path, text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, text)
    assert next(memory_limit._totals()) == size
    assert available_memory() == max(min(size - 100 * PAGES, 2_000_000 * KB), 0)
    assert or_raise_limit() == (f", or raise {LIMIT}" if text else "")


@pytest.mark.parametrize("text", ["0", "0k", "x", "1e3", "1 zb", "-1", "1k k"])
def test_a_memory_limit_that_is_no_size_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(UsageError, match="not a size"):
        available_memory()


def test_only_large_sizes_beyond_available_memory_are_refused(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(system / "_PROC" / "meminfo", "MemAvailable: 100000 kB\n")
    free = 100_000 * KB
    require_memory("a", free, "is")
    require_memory("a", memory_limit._WORTH_ASKING, "is", times=1000)
    with pytest.raises(TraceFormatError, match=r"^a: is: 102\.4 MB, but only 102\.4 MB of memory is available; use"):
        require_memory("a", free + 1, "is")
    with pytest.raises(TraceFormatError, match=r"available; drop it$"):
        require_memory("a", memory_limit._WORTH_ASKING + 1, "is", times=2, remedy="drop it")


def test_inputs_that_keep_expanding_too_much_are_refused() -> None:
    stretch, growth, most = memory_limit._STRETCH, memory_limit._GROWTH, memory_limit._GROWN
    sound, watch = Expansion("x"), Expansion("x")
    for _ in range(1000):
        sound.add(stretch, growth * stretch)
    for _ in range(most // (growth * stretch + 1)):
        watch.add(stretch, growth * stretch + 1)
    with pytest.raises(TraceFormatError, match=r"x: unpacks to over 39\.3 MB from 196\.6 kB, but"):
        watch.add(stretch, growth * stretch + 1)
    small = Expansion("x", "reads as")
    for _ in range(growth - 1):
        small.add(1, stretch)  # not yet a stretch
    with pytest.raises(TraceFormatError, match="x: reads as over"):
        for _ in range(growth * 3):
            small.add(1, stretch)


def test_a_process_that_holds_too_much_is_stopped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[int, float]] = []
    monkeypatch.setattr(signal, "setitimer", lambda *timer: timers.append(timer))
    monkeypatch.setattr(memory_limit, "_held", lambda: 100)
    memory_limit._check_held(100)
    assert timers == []
    with pytest.raises(MemoryError):
        memory_limit._check_held(99)
    assert timers == [(signal.ITIMER_PROF, 0)], "what handles the error takes memory, too"


def limits_set(system: Path, soft: int, reserved: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the system is told to refuse, where a process has a limit and has reserved some pages."""
    resource = pytest.importorskip("resource")
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 1 << 50))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: found.append(limits))
    write(system / "_PROC" / "self" / "status", f"Name: python\n{reserved}\n")
    memory_limit._refuse_beyond_machine()
    return found


def test_the_system_refuses_a_quarter_more_than_all_memory(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    most = 8_000_005 * KB * 5 // 4 + memory_limit._SLACK
    held = 100 * PAGES // KB
    infinite = resource.RLIM_INFINITY
    for soft, reserved, limit in [
        (infinite, held, most), (infinite, 0, most), (infinite, held + 3, most + 3 * KB),
        (most + 1, held, most), (most, held, None), (1000, held, None),
    ]:  # fmt: skip
        found = limits_set(system, soft, f"VmData: {reserved} kB", monkeypatch)
        assert found == ([] if limit is None else [(limit, 1 << 50)])
    assert limits_set(system, infinite, "VmRSS: 5 kB", monkeypatch) == []
    monkeypatch.setenv(LIMIT, "4KiB")
    assert limits_set(system, infinite, f"VmData: {held} kB", monkeypatch) == [(5120 + memory_limit._SLACK, 1 << 50)]
    monkeypatch.delenv(LIMIT)
    (system / "_PROC" / "meminfo").unlink()
    assert limits_set(system, infinite, f"VmData: {held} kB", monkeypatch) == []
