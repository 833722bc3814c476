"""The GPUs of this machine and their MIG instances, as nvidia-smi lists them."""

import logging
import os
import re
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_ANSWER_S = 15.0
"""How long nvidia-smi may take: a GPU with a broken driver keeps it for ever."""

_MOST_BYTES = 1 << 20
_MOST_GPUS = 64
_GPU = re.compile(r"^GPU (\d{1,4}): (.{1,100}?) \(UUID: (GPU-[0-9A-Za-z-]{1,60})\)\s*$")
_INSTANCE = re.compile(
    r"^\s+MIG ([0-9a-z.+]{1,30})\s+Device\s+\d+: \(UUID: (MIG-[0-9A-Za-z/-]{1,80})\)\s*$"
)
_LOCATION = re.compile(r"^([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,4})\s*$", re.MULTILINE)
_DRIVER = Path("/proc/driver/nvidia/gpus")
_QUERY = "--query-gpu=uuid,pci.bus_id,memory.total,mig.mode.current"

WHOLE = "nvidia.com/gpu"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; its device file is /dev/nvidia`minor`, None where the driver has no record of it."""

    uuid: str
    model: str
    memory_mib: int = 0
    minor: int | None = None
    has_mig: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """What one container can hold: a whole GPU, or a MIG instance of one."""

    uuid: str
    resource: str
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class MachineGpus:
    """All GPUs of a machine, and the devices that they are divided into."""

    gpus: tuple[Gpu, ...] = ()
    devices: tuple[Device, ...] = ()

    def amounts(self) -> dict[str, int]:
        """Return the number of devices by resource name."""
        resources = [device.resource for device in self.devices]
        return {name: resources.count(name) for name in dict.fromkeys(resources)}


def machine_gpus(program: str = "nvidia-smi", driver: Path = _DRIVER) -> MachineGpus:
    """Return the GPUs of this machine; none where nvidia-smi is absent or does not answer."""
    listed = _answer([program, "-L"])
    if not listed:
        return MachineGpus()
    return read_gpus(listed, _answer([program, _QUERY, "--format=csv,noheader,nounits"]), driver)


def read_gpus(listed: str, queried: str, driver: Path = _DRIVER) -> MachineGpus:
    """Return the GPUs that `nvidia-smi -L` lists, with the properties of `--query-gpu`.

    A GPU in MIG mode is never a device itself, even if it has no instance. Nor is a GPU of unknown
    mode, which has no line in `queried`.
    """
    properties = _properties(queried)
    gpus: list[Gpu] = []
    instances: dict[str, list[tuple[str, str]]] = {}
    for line in listed.splitlines():
        if (match := _GPU.match(line)) and len(gpus) < _MOST_GPUS:
            location, memory_mib, has_mig = properties.get(match[3], ("", 0, False))
            gpus.append(Gpu(match[3], match[2], memory_mib, _minor(location, driver), has_mig))
        elif (match := _INSTANCE.match(line)) and gpus:
            resource = f"nvidia.com/mig-{match[1].replace('+', '.')}"
            instances.setdefault(gpus[-1].uuid, []).append((match[2], resource))
    devices = []
    for gpu in gpus:
        parts = instances.get(gpu.uuid, [])
        if gpu.uuid in properties and not gpu.has_mig and not parts:
            parts = [(gpu.uuid, WHOLE)]
        devices += [Device(uuid, resource, gpu) for uuid, resource in parts]
    return MachineGpus(tuple(gpus), tuple(devices))


def _properties(queried: str) -> dict[str, tuple[str, int, bool]]:
    """Return bus location, memory in MiB and whether MIG is on, by UUID."""
    properties = {}
    for line in queried.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4:
            uuid, location, memory, mode = parts
            memory_mib = int(memory) if re.fullmatch(r"\d{1,9}", memory) else 0
            properties[uuid] = (location, memory_mib, mode == "Enabled")
    return properties


def _minor(location: str, driver: Path) -> int | None:
    """Return the number of a GPU's device file; nvidia-smi does not print it in a table."""
    match = _LOCATION.match(location)
    if match is None:
        return None
    try:
        text = (driver / f"{match[1][-4:]}:{match[2]}".lower() / "information").read_text()
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found else None


def _answer(command: list[str]) -> str:
    """Return the output of a program, bounded in time and size; "" if it does not end well."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return ""  # a machine without GPUs
    assert process.stdout is not None, "asked for"  # noqa: S101
    deadline_s = time.monotonic() + _ANSWER_S
    output = b""
    with process.stdout as pipe:
        while (left_s := deadline_s - time.monotonic()) > 0 and len(output) <= _MOST_BYTES:
            if not select.select([pipe], [], [], left_s)[0]:
                break
            part = os.read(pipe.fileno(), 1 << 16)
            if not part:
                return output.decode(errors="replace") if _ended_well(process, left_s) else ""
            output += part
    process.kill()
    log.warning(
        "%s did not answer within %g s and %d bytes; no GPU of this machine is used",
        " ".join(command),
        _ANSWER_S,
        _MOST_BYTES,
    )
    return ""


def _ended_well(process: "subprocess.Popen[bytes]", wait_s: float) -> bool:
    try:
        return process.wait(wait_s) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        return False
