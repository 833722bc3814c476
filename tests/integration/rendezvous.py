"""A stand-in for a training image: each process connects to the address in its environment.

Rank 0 listens; the others connect; each ends once all have met. What is wrong with the contract
(an address, a rank, a count) ends it with an error or never.
"""

import json
import os
import socket
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from waiting import patience_s, until

WITHIN_S = 60.0


def told() -> tuple[str, int, int, int]:
    """Return address, port, rank and world size from the variables of whichever kind this is."""
    env = os.environ
    if "TF_CONFIG" in env:
        config = json.loads(env["TF_CONFIG"])
        members = [one for role in sorted(config["cluster"]) for one in config["cluster"][role]]
        task = config["task"]
        host, port = members[0].rsplit(":", 1)
        rank = members.index(config["cluster"][task["type"]][task["index"]])
        return host, int(port), rank, len(members)
    if "COORDINATOR_ADDRESS" in env:
        return (
            env["COORDINATOR_ADDRESS"],
            int(env["COORDINATOR_PORT"]),
            int(env["PROCESS_ID"]),
            int(env["NUM_PROCESSES"]),
        )
    if "PADDLE_NNODES" in env:
        host, port = env["PADDLE_MASTER"].rsplit(":", 1)
        rank = 0 if "POD_IP_DUMMY" in env else 1  # only rank 0 is told its own address
        return host, int(port), rank, int(env["PADDLE_NNODES"])
    if "MASTER_ADDR" not in env:  # a TFJob of one process is told nothing
        return "localhost", 0, 0, 1
    return env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env["RANK"]), int(env["WORLD_SIZE"])


def lead(port: int, others: int) -> None:
    """Wait for every other process."""
    with socket.create_server(("", port)) as server:
        server.settimeout(patience_s(WITHIN_S))
        met = [server.accept()[0] for _ in range(others)]
    for one in met:
        one.sendall(b"go")
        one.close()


def follow(host: str, port: int) -> None:
    """Meet rank 0, which may start later."""

    def met() -> bool:
        try:
            with socket.create_connection((host, port), timeout=patience_s(WITHIN_S)) as leader:
                if leader.recv(2) != b"go":
                    raise SystemExit("rank 0 went away")
        except OSError:
            return False
        return True

    until(met, f"rank 0 at {host}:{port}", WITHIN_S, every_s=0.2)


if __name__ == "__main__":
    host, port, rank, world = told()
    lead(port, world - 1) if rank == 0 else follow(host, port)
    print(f"rank {rank} of {world} met the others at {host}:{port}")
