"""Text files that are UTF-8, and errors for those that are not."""

# How files begin that are not UTF-8 text.
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\3\4"}


def check_beginning(path: str, line: bytes) -> None:
    """Checks the first line of a file that must be UTF-8 text.

    Raises:
      ValueError: where the file has another encoding, is packed or is a workbook of Excel, or all
        lines of a file of old Macs are this one.
    """
    if line.startswith(_UTF_16):
        raise ValueError(
            f"{path!r} must be UTF-8 text. It is UTF-16: convert it, as with `iconv -f UTF-16 -t "
            "UTF-8`."
        )
    check_no_workbook(path, line)
    # NumPy packs arrays, too.
    if line.startswith(tuple(_PACKED.values())) and not path.lower().endswith(".npz"):
        kind = next(kind for kind, begin in _PACKED.items() if line.startswith(begin))
        raise ValueError(
            f"{path!r} must be text, plain or gzip. It begins as a {kind} file: unpack it first."
        )
    # A text may have a single carriage return.
    if not line.endswith(b"\n") and line.count(b"\r") > 1 and b"\r" in line.rstrip(b"\r"):
        raise ValueError(
            f"{path!r} must have lines that end with LF, or CR and LF. They end with CR alone, as "
            "in Excel's CSV for old Macs: convert it, as with `tr '\\r' '\\n'`."
        )


def check_no_workbook(path: str, line: bytes = b"") -> None:
    """Raises `ValueError` where a file is a workbook, by its extension or its first line."""
    if path.lower().endswith((".xlsx", ".xlsm")) or line.startswith(_OLD_EXCEL):
        raise ValueError(
            f"{path!r} must be text or Parquet. It is a workbook of Excel: save its sheet as CSV "
            "UTF-8, or with pandas, `pandas.read_excel(...).to_csv(..., index=False)`, and give "
            "that file."
        )


def decode_line(path: str, number: int, line: bytes, errors: str = "strict") -> str:
    """Returns the text of a line, without its end, and without a byte order mark in line 1."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
    except UnicodeDecodeError as error:
        shown = line[max(error.start - 20, 0) : error.start + 10]
        raise ValueError(
            f"{path}:{number}: text must be UTF-8. Received {shown!r}. Convert the file, if it is "
            "Latin-1 with `iconv -f LATIN1 -t UTF-8`, if it is Chinese perhaps with `-f GB18030`."
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
