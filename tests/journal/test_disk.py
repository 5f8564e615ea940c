"""Files in memory behave as files."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.journal.disk import SMALL_BYTES, RamDisk

OFFSETS = st.integers(0, 3 * SMALL_BYTES)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2 * SMALL_BYTES)),
    st.tuples(st.just("write"), OFFSETS),
    st.tuples(st.just("truncate"), OFFSETS),
)


@given(st.lists(STEPS, max_size=12), st.lists(st.tuples(OFFSETS, OFFSETS), max_size=5))
def test_a_file_is_what_was_written_to_it(
    steps: list[tuple[str, int]], reads: list[tuple[int, int]]
) -> None:
    disk, model = RamDisk(), bytearray()
    disk.write("f", 0, b"")
    for number, (what, n) in enumerate(steps):
        data = bytes([number + 1])
        if what == "append":
            disk.write("f", len(model), data * n)
            model += data * n
        elif what == "write":
            at = min(n, len(model))
            disk.write("f", at, data * 100)
            model[at : at + 100] = data * 100
        else:
            size = min(n, len(model))
            disk.truncate("f", size)
            del model[size:]
        assert disk.size("f") == len(model)
    assert disk.read("f", 0, len(model) + 1) == model
    for offset, size in reads:
        assert disk.read("f", offset, size) == model[offset : offset + size]
