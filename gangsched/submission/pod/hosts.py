"""Lists of hosts, as the variables of a job and `scontrol` have them."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"(.*-)(\d+)(\..*)?")
_PART = re.compile(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*")
_RANGES = re.compile(r"([^\[]*)\[([0-9,-]+)\](.*)")
_HOSTS_MAX = 100_000


def compressed(hosts: list[str]) -> str:
    """Return hosts as one range if their numbers follow each other, else with commas."""
    if len(hosts) < 2:
        return ",".join(hosts)
    numbers = []
    ends = set()
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None:
            return ",".join(hosts)
        numbers.append(int(match.group(2)))
        ends.add((match.group(1), match.group(3) or ""))
    if len(ends) > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ",".join(hosts)
    stem, end = ends.pop()
    return f"{stem}[{numbers[0]}-{numbers[-1]}]{end}"


def expanded(text: str) -> list[str]:
    """Return the hosts of a list with ranges."""
    hosts: list[str] = []
    for part in _PART.findall(text):
        match = _RANGES.fullmatch(part)
        if match is None:
            hosts.append(part)
            continue
        for numbers in match.group(2).split(","):
            first, _, last = numbers.partition("-")
            width = len(first)
            end = min(int(last or first), int(first) + _HOSTS_MAX)
            hosts += [
                f"{match.group(1)}{number:0{width}d}{match.group(3)}"
                for number in range(int(first), end + 1)
            ]
    return hosts
