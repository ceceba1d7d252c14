"""Every reader by name, and the choice of a reader for a file: by name, or the first that recognises the content."""

from __future__ import annotations

from traces.errors import InputError
from traces.formats import AUTO, FORMATS
from traces.readers import agent
from traces.readers.common import RawFile, Reader
from traces.readers.node_lists import scontrol, sinfo, sinfo_json
from traces.readers.philly import derived as philly_derived
from traces.readers.philly import reader as philly
from traces.readers.published import acme, graham, helios, openb, swf_jobs
from traces.readers.sacct import reader as sacct
from traces.readers.unknown import what_it_is

# In the order in which they are tried, which is the order of FORMATS.
READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        philly.JobLog(),
        philly.GpuUtilization(),
        philly.CpuUtilization(),
        philly.MemoryUtilization(),
        philly.MachineList(),
        philly_derived.DerivedJobs(),
        helios.Helios(),
        acme.Acme(),
        openb.OpenbPods(),
        openb.OpenbNodes(),
        graham.Graham(),
        swf_jobs.Swf(),
        agent.AgentLog(),
        scontrol.ScontrolNodes(),
        sinfo.Sinfo(),
        sinfo_json.SinfoJson(),
        sacct.Sacct(),
    )
}
assert tuple(READERS) == FORMATS, "traces.formats names the readers"

UTF16 = (b"\xff\xfe", b"\xfe\xff")


def reader_for(raw: RawFile, name: str = AUTO) -> Reader:
    """Return the named reader, or the first that recognises the file. Raises InputError if none does."""
    if not raw.path.exists():
        raise InputError(f"{raw.path}: no such file")
    if not raw.path.is_file():
        raise InputError(f"{raw.path}: not a regular file")
    head = raw.head()
    if not head.strip():
        raise InputError(f"{raw.path}: the file is empty")
    if name != AUTO:
        return READERS[name]
    for reader in READERS.values():
        if reader.recognises(raw, head):
            return reader
    if head.startswith(UTF16):
        raise InputError(f"{raw.path}: UTF-16 text: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in head:
        raise InputError(
            f"{raw.path}: a binary file, but all known formats are text (gzip, zstd allowed): {', '.join(READERS)}"
        )
    headers = {name: set(reader.header) for name, reader in READERS.items() if hasattr(reader, "header")}
    raise InputError(f"{raw.path}:1: {what_it_is(head, headers)}")
