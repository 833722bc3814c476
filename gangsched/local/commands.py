"""The command lines of the control plane's programs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from gangsched.local import pki

SCHEDULER = "gangsched"
ALIASES = ("volcano", "scheduler-plugins-scheduler", "kai-scheduler")
"""Names of other schedulers that a local control plane serves: their files run unchanged."""

_HERE = Path(__file__).parent


def etcd(program: Path, folder: Path, port: int, peer: int) -> list[str]:
    """Return the command of etcd: one member, no fsync, as no data must survive a power cut."""
    client, other = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return _line(
        program,
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={other}",
        f"--initial-advertise-peer-urls={other}",
        f"--initial-cluster=default={other}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={4 * 2**30}",
        "--log-level=warn",
    )


def apiserver(
    program: Path,
    authority: pki.Authority,
    etcd_port: int,
    port: int,
    flags: str,
    egress: Path | None = None,
) -> list[str]:
    """Return the command of kube-apiserver: RBAC, loopback only; it reaches pods by `egress`."""
    certificate, key = authority.server(
        "kube-apiserver",
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        pki.SERVICE_IP,
    )
    kubelet_certificate, kubelet_key = authority.client(
        "kubelet-client", "kube-apiserver-kubelet-client", "system:masters"
    )
    private, public = authority.service_account_keys()
    return _line(
        program,
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority.ca}",
        f"--token-auth-file={authority.tokens}",
        f"--kubelet-certificate-authority={authority.ca}",
        f"--kubelet-client-certificate={kubelet_certificate}",
        f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={private}",
        f"--service-account-key-file={public}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        # One small machine is its own admission control: no fair queueing between clients.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        *([] if egress is None else _through(authority, egress)),
        *flags.split(),
    )


def manager(
    binaries: Path, authority: pki.Authority, folder: Path, port: int, flags: str
) -> list[str]:
    """Return the command of kube-controller-manager."""
    return _line(
        binaries / "kube-controller-manager",
        f"--kubeconfig={folder / 'manager.kubeconfig'}",
        *_serving(folder, port),
        "--leader-elect=false",
        f"--root-ca-file={authority.ca}",
        f"--service-account-private-key-file={folder / 'pki' / 'sa.key'}",
        "--use-service-account-credentials=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *flags.split(),
    )


def scheduler(binaries: Path, folder: Path, port: int, flags: str, *, own: bool) -> list[str]:
    """Return the command of kube-scheduler, with its `own` configuration or the default one."""
    default = [
        f"--kubeconfig={folder / 'scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--kube-api-qps=5000",
        "--kube-api-burst=5000",
    ]
    return _line(
        binaries / "kube-scheduler",
        *_serving(folder, port),
        *([] if own else default),
        *flags.split(),
    )


def gangsched(folder: Path, binding: str, extender: int, metrics: int, *flags: str) -> list[str]:
    """Return the command of gangsched, which serves the names of other schedulers too."""
    return [
        *(sys.executable, "-m", "gangsched", "run"),
        *("--kubeconfig", str(folder / "gangsched.kubeconfig")),
        *("--binding", binding),
        *("--extender-port", str(extender)),
        *("--metrics-port", str(metrics)),
        *(f"--alias={alias}" for alias in ALIASES),
        *flags,
    ]


def _serving(folder: Path, port: int) -> list[str]:
    """Return flags to serve with the API server's certificate.

    Without them a program creates two RSA keys when it starts: 0.1 to 0.6 s of CPU.
    """
    certificate = folder / "pki" / "kube-apiserver.crt"
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={certificate.with_suffix('.key')}",
    ]


def _through(authority: pki.Authority, egress: Path) -> list[str]:
    """Return flags by which webhooks and aggregated APIs are called at the pods of their Services.

    No program serves cluster addresses here. An aggregated API reads the user from headers, which
    it trusts from clients with a certificate of an authority that signs nothing else.
    """
    proxy = pki.Authority(authority.folder / "front-proxy")
    certificate, key = proxy.client("client", "front-proxy-client", "none")
    return [
        f"--egress-selector-config-file={egress}",
        "--enable-aggregator-routing",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
        f"--requestheader-client-ca-file={proxy.ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def egress_config(authority: pki.Authority, port: int) -> dict[str, object]:
    """Return the configuration by which the API server reaches nodes and pods: a proxy."""
    certificate, key = authority.client("egress-client", "kube-apiserver-egress-client", "none")
    tls = {"caBundle": str(authority.ca), "clientCert": str(certificate), "clientKey": str(key)}
    connection = {
        "proxyProtocol": "HTTPConnect",
        "transport": {"tcp": {"url": f"https://127.0.0.1:{port}", "tlsConfig": tls}},
    }
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def agent(
    authority: pki.Authority,
    folder: Path,
    port: int,
    egress_port: int,
    isolation: str,
    forwards: Sequence[int] = (),
) -> list[str]:
    """Return the command of the agent, which runs the pods of process nodes.

    Pods reach the ports `forwards` of this machine's loopback.
    """
    certificate, key = authority.server("kubelet", "127.0.0.1", "localhost")
    return [
        *(sys.executable, "-m", "gangsched.local.agent"),
        *("--kubeconfig", str(folder / "agent.kubeconfig")),
        *("--nodes", str(folder / "process-nodes.yaml")),
        *("--port", str(port)),
        *("--egress-port", str(egress_port)),
        *("--certificate", str(certificate)),
        *("--key", str(key)),
        *("--client-ca", str(authority.ca)),
        *("--state", str(folder / "agent")),
        *("--ready", str(folder / "agent.ready")),
        *("--isolation", isolation),
        *(f"--forward={port}" for port in forwards),
    ]


def kwok(binaries: Path, stages: str, folder: Path) -> list[str]:
    """Return the command of KWOK, which simulates the nodes with its annotation."""
    return _line(
        binaries / "kwok",
        f"--kubeconfig={folder / 'kwok.kubeconfig'}",
        f"--config={binaries / stages}",
        f"--config={_HERE / 'kwok-stages.yaml'}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
    )


def prometheus(binaries: Path, folder: Path, port: int) -> list[str]:
    """Return the command of Prometheus: loopback only, data as long as the control plane."""
    return _line(
        binaries / "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )


def prometheus_config(metrics: int) -> dict[str, object]:
    """Return the configuration of Prometheus, which scrapes gangsched each second.

    It scrapes other targets too: those that files in `targets`, beside the configuration, list.
    """
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "gangsched",
                "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}],
            },
            {"job_name": "targets", "file_sd_configs": [{"files": ["targets/*.json"]}]},
        ],
    }


def _line(program: Path, *flags: str) -> list[str]:
    return [str(program), *flags]
