"""`python -m gangsched.local.agent`: started by `gangsched local up`, one for all process nodes."""

import argparse
import asyncio
import logging
import signal
import ssl
from pathlib import Path

from gangsched.imports import collecting_nothing

with collecting_nothing():
    from gangsched.kube.client.client import UNTIL_ANSWERED, KubeClient
    from gangsched.local.agent.agent import Agent
    from gangsched.local.agent.devices import device_pool
    from gangsched.local.agent.isolation.egress import Egress
    from gangsched.local.agent.isolation.gateway import Gateway
    from gangsched.local.agent.isolation.leftovers import end_leftovers
    from gangsched.local.agent.isolation.sandbox import choose
    from gangsched.local.agent.server.kubelet import Kubelet
    from gangsched.local.agent.storage import Storage
    from gangsched.local.gpus import machine_gpus
    from gangsched.local.nodes import load_nodes

log = logging.getLogger("gangsched.agent")


def main() -> None:
    """Run the process nodes until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("kubeconfig", "nodes", "certificate", "key", "client-ca", "state", "ready"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("port", "egress-port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--forward", type=int, action="append", default=[])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s")
    asyncio.run(_run(parser.parse_args()))


async def _run(options: argparse.Namespace) -> None:
    options.state.mkdir(parents=True, exist_ok=True)
    end_leftovers()
    sandboxes = choose(options.isolation, options.state)
    log.info("isolation of pods: %s", sandboxes.mode)
    if sandboxes.mode == "none":
        log.warning("pods share this machine's loopback and files: two may not use one port")
    async with KubeClient(options.kubeconfig, tries=UNTIL_ANSWERED) as client:
        nodes = load_nodes(options.nodes)
        gateway = Gateway(sandboxes, client.server, options.forward)
        await gateway.open()
        egress = Egress(sandboxes)
        tls = _tls(options)
        await egress.open(options.egress_port, tls)
        storage = Storage(client, options.state / "volumes")
        devices = device_pool(nodes, machine_gpus())
        for name in devices.nodes():
            log.info("%s has GPUs of this machine", name)
        agent = Agent(
            client, nodes, sandboxes, options.state, options.port, gateway, storage, devices
        )
        kubelet = Kubelet(agent.find)
        await kubelet.serve(options.port, tls)
        running = asyncio.create_task(agent.run(options.ready))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            log.info("stopping")
        finally:
            egress.close()
            agent.close()


def _tls(options: argparse.Namespace) -> ssl.SSLContext:
    """Return the TLS settings for the API server; a client without a certificate is refused."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(options.client_ca))
    context.load_cert_chain(options.certificate, options.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


if __name__ == "__main__":
    main()
