"""Compiled functions that convert the bytes of an sacct dump to typed columns.

`split` finds all delimiters once. After that, a column is two arrays of positions, `before` and `end`, both (rows,).
The text of row r is data[before[r] + 1 : end[r]]; empty means blank. No text is copied. For the lines `7|RUNNING` and
`8|FAILED` and the delimiter `|`, the second column has before = [1, 11] and end = [9, 18].

The other functions convert one such column to numbers. Each reads the plain formats of its kind (a time such as
2024-05-01T10:00:00, a count such as 16). It returns flags, (rows,), for the rows that it could read; a blank counts as
read and has no value. `traces.slurm.text` parses all other rows: it knows every format that Slurm prints, but is slower
by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import compiled
from traces.arrays import Float64s, Int64s
from traces.readers.sacct.instructions import eight, fetch, lowest

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]
Flags = NDArray[np.bool_]

AHEAD = 24  # rows
_BYTES = "Array(uint8, 1, 'C', readonly=True)"
_TEXTS = f"{_BYTES}, int32[::1], int32[::1]"  # data, before, end
_NEWLINE, _RETURN, _ZERO, _DOT, _COLON, _DASH, _UNDERSCORE, _PLUS, _K = 10, 13, 48, 46, 58, 45, 95, 43, 75
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 by the golden ratio (Knuth, TAOCP 3, 6.4)
_EACH = np.uint64(0x0101010101010101)  # 1 in each of eight bytes
_HIGH, _LOW = np.uint64(0x80) * _EACH, np.uint64(0x7F) * _EACH
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def _kernel(signature: str) -> Callable[[compiled.Function], compiled.Function]:
    """Return a decorator that compiles at import, so that two threads never compile at once, and releases the GIL."""
    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    return lambda function: compiled.jit(function, options, signature)


def _inline(function: compiled.Function) -> compiled.Function:
    return compiled.jit(function, {"nogil": True, "_nrt": False, "forceinline": True})


@_inline
def _fetch(data: Bytes, places: Places, row: int) -> None:
    """Load the bytes of the row AHEAD rows later into the cache, because the processor cannot predict the jump."""
    fetch(data, places[min(row + AHEAD, len(places) - 1)] + 1)


@_inline
def _word(data: Bytes, at: int, end: int) -> np.uint64:
    """Return up to eight bytes of data[at:end] as one number, padded with zeros."""
    if at + 8 <= len(data):
        word = eight(data, at)
        return word if at + 8 <= end else word & (_ALL >> np.uint64(64 - 8 * (end - at)))
    word = np.uint64(0)
    for n in range(min(end - at, 8)):
        word |= np.uint64(data[at + n]) << np.uint64(8 * n)
    return word


@_kernel(f"int64({_BYTES}, int64, int64, boolean, int32[::1], int64[::1], boolean[::1])")
def split(data: Bytes, mark: int, columns: int, trailing: bool, places: Places, starts: Int64s, whole: Flags) -> int:
    """Find the fields, separated by `mark`, of the lines with that many columns; return the number of such lines.

    Output arrays:

    - starts (lines + 1,): the beginning of each line
    - whole (lines,): which lines have that many columns
    - places (bytes + lines + 2,): for each such line in turn, the position before its first field and the end of each
      field; at most one more than the bytes of a line of delimiters only

    A carriage return before a line break is not part of the last field.
    """
    marks, newlines = np.uint64(mark) * _EACH, np.uint64(_NEWLINE) * _EACH
    base = rows = line = 0  # base: position of the current line in `places`
    top = 1
    places[0] = -1
    starts[0] = 0
    for at in range(0, len(data), 8):
        word = _word(data, at, len(data))
        a, b = word ^ marks, word ^ newlines
        # set the high bit of each byte that is 0 in a or in b, which was a delimiter or a line break
        # (Mycroft's trick, in the variant without false hits; `instructions` has a worked example)
        hits = ~((((a & _LOW) + _LOW) | a) & (((b & _LOW) + _LOW) | b)) & _HIGH
        while hits != 0:
            place = at + (lowest(hits) >> 3)
            hits &= hits - np.uint64(1)
            places[top] = place
            if data[place] != _NEWLINE:
                top += 1
                continue
            stop = place - (place > 0 and data[place - 1] == _RETURN)  # one file may mix both line endings
            fits = top - base == columns + trailing
            if trailing:
                fits &= places[top - 1] == stop - 1
            elif fits:
                places[top] = stop
            whole[line] = fits
            line += 1
            starts[line] = place + 1
            if fits:
                base += columns + 1
                rows += 1
            places[base] = place
            top = base + 1
    return rows


@_kernel(f"int64({_TEXTS}, uint64, int32[::1], uint32[::1], int32[::1])")
def code(
    data: Bytes, before: Places, end: Places, seed: np.uint64, table: Places, codes: NDArray[np.uint32], first: Places
) -> int:
    """Number the distinct texts in order, from 1, with 0 for blank; return the next unused number.

    table must be zeros, of a length that is a power of two and at least twice the rows. Output arrays: codes (rows,);
    first (rows + 1,), a row of each number.
    """
    next_number = 1
    mask = len(table) - 1
    for row in range(len(before)):
        _fetch(data, before, row)
        begin, stop = before[row] + 1, end[row]
        if stop <= begin:
            codes[row] = 0
            continue
        hashed = seed ^ np.uint64(stop - begin)
        at = begin
        while at < stop:
            hashed = (hashed ^ _word(data, at, stop)) * _FACTOR
            hashed ^= hashed >> np.uint64(32)
            at += 8
        slot = np.int64(hashed & np.uint64(mask))
        while True:
            number = table[slot]
            if number == 0:
                table[slot] = next_number
                first[next_number] = row
                codes[row] = next_number
                next_number += 1
                break
            to_other = before[first[number]] + 1 - begin
            if end[first[number]] == stop + to_other:
                at = begin
                while at < stop and _word(data, at, stop) == _word(data, at + to_other, stop + to_other):
                    at += 8
                if at >= stop:
                    codes[row] = number
                    break
            slot = (slot + 1) & mask
    return next_number


@_kernel(f"void({_TEXTS}, int64[::1], uint8[::1])")
def copy(data: Bytes, before: Places, end: Places, offsets: Int64s, texts: Bytes) -> None:
    """Copy the texts one after the other into `texts`, at offsets (rows + 1,)."""
    for row in range(len(before)):
        _fetch(data, before, row)
        to, begin = offsets[row], before[row] + 1
        for at in range(offsets[row + 1] - to):
            texts[to + at] = data[begin + at]


def _form(text: bytes) -> tuple[np.uint64, np.uint64]:
    """Encode a pattern of at most eight bytes, with 0 for a digit, as two words.

    The first holds its bytes. Adding the second sets the high bit of each byte that does not fit.
    """
    most = bytes(0x76 if byte == _ZERO else 0x7F for byte in text.ljust(8, b"\0"))
    return np.uint64(int.from_bytes(text, "little")), np.uint64(int.from_bytes(most, "little"))


_MONTH, _MONTH_MOST = _form(b"0000-00-")
_DAY, _DAY_MOST = _form(b"00T")
_CLOCK, _CLOCK_MOST = _form(b"00:00:00")
_NO_HOUR = np.uint64(int.from_bytes(b"00:", "little"))


@_inline
def _digits_of(word: np.uint64, form: np.uint64, most: np.uint64) -> np.uint64:
    """Return the word's digits, one a byte; a byte that does not fit the pattern has its high bit set."""
    digits = word ^ form
    return digits | (((digits & _LOW) + most) & _HIGH)


@_inline
def _pair(digits: np.uint64, byte: int) -> Any:
    """Return the number of the two digits that begin at that byte."""
    return (np.int64(digits >> np.uint64(8 * byte)) & 15) * 10 + (np.int64(digits >> np.uint64(8 * byte + 8)) & 15)


@_inline
def _digits(data: Bytes, at: int, end: int) -> Any:
    """Return the number in data[at:end]; -1 unless it is one to 18 digits."""
    if end <= at or end - at > 18:
        return -1
    number: Any = 0
    for place in range(at, end):
        digit = np.int64(data[place]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
    return number


@_kernel(f"void({_TEXTS}, int64[::1], boolean[::1])")
def times(data: Bytes, before: Places, end: Places, values: Int64s, certain: Flags) -> None:
    """Convert YYYY-MM-DDTHH:MM:SS, years 1900 to 2099, to microseconds since 1970."""
    for row in range(len(before)):
        _fetch(data, before, row)
        at = before[row] + 1
        values[row] = 0
        certain[row] = end[row] <= at
        if end[row] - at != 19:
            continue
        month_of = _digits_of(_word(data, at, at + 8), _MONTH, _MONTH_MOST)
        day_of = _digits_of(_word(data, at + 8, at + 11), _DAY, _DAY_MOST)
        clock = _digits_of(_word(data, at + 11, at + 19), _CLOCK, _CLOCK_MOST)
        if (month_of | day_of | clock) & _HIGH:
            continue
        century, year = _pair(month_of, 0), _pair(month_of, 0) * 100 + _pair(month_of, 2)
        month, day = _pair(month_of, 5), _pair(day_of, 0)
        hour, minute, second = _pair(clock, 0), _pair(clock, 3), _pair(clock, 6)
        leap = year % 4 == 0 and year != 1900
        length = 30 + ((month + (month >> 3)) & 1) - (month == 2) * (2 - leap)
        if not (19 <= century <= 20 and 1 <= month <= 12 and 1 <= day <= length):
            continue
        if hour > 23 or minute > 59 or second > 59:
            continue
        if month <= 2:  # count years from March, so that a leap day is their last day
            year, month = year - 1, month + 12
        days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469
        values[row] = (days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000
        certain[row] = True


@_kernel(f"void({_TEXTS}, int64[::1], boolean[::1])")
def counts(data: Bytes, before: Places, end: Places, values: Int64s, certain: Flags) -> None:
    """Convert whole numbers of at most nine digits, so that sums of products fit in 64 bits."""
    for row in range(len(before)):
        _fetch(data, before, row)
        at, stop = before[row] + 1, end[row]
        number = _digits(data, at, stop)
        certain[row] = stop <= at or (number >= 0 and stop - at <= 9)
        values[row] = number


@_kernel(f"void({_TEXTS}, int64[::1], boolean[::1])")
def sizes_kib(data: Bytes, before: Places, end: Places, values: Int64s, certain: Flags) -> None:
    """Convert numbers of at most nine digits to KiB: with a K they are KiB, else bytes, rounded down."""
    for row in range(len(before)):
        _fetch(data, before, row)
        at, stop = before[row] + 1, end[row]
        certain[row] = stop <= at
        values[row] = 0
        if stop <= at:
            continue
        kib = data[stop - 1] == _K
        number = _digits(data, at, stop - kib)
        certain[row] = number >= 0 and stop - kib - at <= 9
        values[row] = number if kib else number // 1024


@_kernel(f"void({_TEXTS}, float64[::1], boolean[::1])")
def durations(data: Bytes, before: Places, end: Places, values: Float64s, certain: Flags) -> None:
    """Convert [[D-]HH:]MM:SS[.mmm], with every part in its usual width, to seconds."""
    for row in range(len(before)):
        _fetch(data, before, row)
        at, stop = before[row] + 1, end[row]
        values[row] = 0.0
        certain[row] = stop <= at
        thousandths = days = 0
        if stop - at > 5 and data[stop - 4] == _DOT:
            thousandths = _digits(data, stop - 3, stop)
            stop -= 4
        if 9 < stop - at < 16 and data[stop - 9] == _DASH:
            days = _digits(data, at, stop - 9)
            at = stop - 8
        if stop - at == 8:
            clock = _word(data, at, stop)
        elif stop - at == 5:
            clock = _word(data, at, stop) << np.uint64(24) | _NO_HOUR
        else:
            continue
        clock = _digits_of(clock, _CLOCK, _CLOCK_MOST)
        if thousandths < 0 or days < 0 or clock & _HIGH:
            continue
        seconds = days * 86_400 + _pair(clock, 0) * 3600 + _pair(clock, 3) * 60 + _pair(clock, 6)
        values[row] = seconds + thousandths / 1000
        certain[row] = True


@_inline
def _past_digits(data: Bytes, at: int, end: int) -> int:
    """Return the first position from `at` on that is not a digit."""
    while at < end and data[at] >= _ZERO and data[at] < _COLON:
        at += 1
    return at


@_kernel(f"void({_TEXTS}, int64[::1], int64[::1], int32[::1], int32[::1], boolean[::1])")
def ids(
    data: Bytes, before: Places, end: Places, numbers: Int64s, tasks: Int64s, digits: Places, stops: Places,
    certain: Flags,
) -> None:  # fmt: skip
    """Parse the ids N, N_T and N+H, each with an optional .STEP.

    Returns N, T (-1 without one), the end of N's digits, and the end of the id at the step's dot. A blank is not
    certain.
    """
    for row in range(len(before)):
        _fetch(data, before, row)
        begin, stop = before[row] + 1, end[row]
        at = _past_digits(data, begin, stop)
        numbers[row], tasks[row], digits[row] = _digits(data, begin, at), -1, at
        fits = numbers[row] >= 0
        if at < stop and data[at] == _UNDERSCORE:
            at = _past_digits(data, at + 1, stop)
            tasks[row] = _digits(data, digits[row] + 1, at)
            fits &= tasks[row] >= 0
        elif at < stop and data[at] == _PLUS:
            at = _past_digits(data, at + 1, stop)
            fits &= 1 < at - digits[row] < 11
        stops[row] = at
        fits &= at == stop or (data[at] == _DOT and at + 1 < stop)
        for place in range(at + 1, stop):
            byte = data[place]
            letter = 97 <= byte | 32 <= 122
            fits &= letter or _ZERO <= byte < _COLON or byte in (_UNDERSCORE, _DOT, _PLUS)
        certain[row] = fits
