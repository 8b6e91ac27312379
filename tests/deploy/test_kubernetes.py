"""The manifests are valid, and keep the promises that the compose file keeps; broken copies do not."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from stream_dp import __version__
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.settings import GatewaySettings, WorkerSettings
from tests.deploy.broken_copies import (
    Breaks,
    Check,
    Document,
    broken,
    flags_of,
    too_much_memory,
    unmet,
    what_a_cluster_shows,
    what_a_view_does_not_need,
    with_breaks,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
ANY_VERSION = "1.33"
CERTIFICATE = {"name": "dask", "secret": {"secretName": "dask"}}


def manifests() -> list[Document]:
    files = [path for path in sorted(FOLDER.glob("*/*.yaml")) if path.name != "kustomization.yaml"]
    return [document for path in files for document in YAML(typ="safe").load_all(path)]


def worker_of_the_cluster() -> Document:
    """The workers of the base, as the cluster's folder changes them."""
    (patch,) = YAML(typ="safe").load(FOLDER / "cluster/kustomization.yaml")["patches"]
    worker = NAMED["StatefulSet/worker"]
    assert patch["target"] == {"kind": "StatefulSet", "name": "worker"}
    for step in YAML(typ="safe").load(patch["patch"]):
        assert step["op"] == "add"
        place = step["path"].strip("/").replace("/", " ").replace("-", "+")
        worker = broken(worker, place, step["value"])
    worker["metadata"]["name"] = "worker-of-the-cluster"
    return dict(worker)


NAMED = {f"{one['kind']}/{one['metadata']['name']}": one for one in manifests()}
DOCUMENTS = {**NAMED, "StatefulSet/worker-of-the-cluster": worker_of_the_cluster()}
"""By kind and name."""


def pods(documents: Document) -> Iterator[tuple[str, Document]]:
    for document in documents.values():
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_manifest_is_what_kubernetes_takes(document: Document) -> None:
    kubernetes_validate.validate(document, ANY_VERSION, strict=True)
    misspelt = {**document, "spec": {**document.get("spec", {}), "replica": 1}}
    if document["kind"] != "Namespace":
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(misspelt, ANY_VERSION, strict=True)


def loose_containers(documents: Document) -> list[str]:
    found = []
    for name, pod in pods(documents):
        for container in pod["containers"]:
            wanted = {
                "runAsNonRoot": True,
                "automountServiceAccountToken": False,
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            given = {**pod, **pod["securityContext"], **container["securityContext"]}
            found += [f"{name}: {key}" for key, value in wanted.items() if given.get(key) != value]
            found += unmet({f"{name} has limits": "limits" in container["resources"]})
    return found


def ways_to_the_store(documents: Document) -> list[str]:
    nothing = documents["NetworkPolicy/nothing"]["spec"]
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    found = [] if nothing == closed else ["all is open"]
    policy = documents["NetworkPolicy/store"]["spec"]
    for rule in policy["ingress"]:
        for source in rule["from"]:
            (expression,) = source["podSelector"]["matchExpressions"]
            found += sorted({*expression["values"]} - {"worker", "counter"})
    return found


def ways_of_the_gateway_to_rows(documents: Document) -> list[str]:
    """It has no address of the store and no password for it, and nobody reaches it without encryption."""
    container = _container(documents, "gateway")
    found = [str(one) for one in container["envFrom"] if "secretRef" in one]
    found += [one["name"] for one in container["env"] if "REDIS" in one["name"]]
    names = {one["name"] for one in container["env"]}
    wanted = {"STREAM_DP_GATEWAY_CERT_FILE", "STREAM_DP_GATEWAY_KEY_FILE"}
    return found + sorted(wanted - names) + sorted(names & {"STREAM_DP_GATEWAY_OPEN"})


def ways_to_the_cluster(documents: Document) -> list[str]:
    """Only workers ask the scheduler, by TLS alone; nobody else reaches it or the processes that count."""
    ports = {"dask-scheduler": 8786, "dask-worker": 8789}
    may = {"dask-scheduler": {"worker", "dask-worker"}, "dask-worker": {"dask-scheduler"}}
    found = []
    for name, port in ports.items():
        for rule in documents[f"NetworkPolicy/{name}"]["spec"]["ingress"]:
            for source in rule["from"]:
                ((selector, labels),) = source.items()
                asking = {*labels.get("matchExpressions", [{"values": []}])[0]["values"]}
                if selector != "podSelector" or not asking or asking - may[name]:
                    found.append(f"{name}: {source}")
            found += [f"{name}: {one}" for one in rule["ports"] if one["port"] != port]
        pod, container = _pod(documents, name), _container(documents, name)
        environment = {one["name"]: one["value"] for one in container["env"]}
        role = name.removeprefix("dask-")
        found += what_a_cluster_shows(role, container["args"], environment, "/etc/dask")
        found += [f"{name}: {one}" for one in container["ports"] if one["containerPort"] != port]
        secrets = [volume.get("secret", {}).get("secretName") for volume in pod["volumes"]]
        found += unmet({f"{name} has a certificate": "dask" in secrets})
    service = documents["Service/dask-scheduler"]["spec"]["ports"]
    return found + [str(one) for one in service if one["port"] != 8786]


def rights_of_the_cluster_that_it_does_not_need(documents: Document) -> list[str]:
    """The processes read rows, and write none; workers do both, and check who the scheduler is."""
    found = []
    for name, secrets in {
        "dask-scheduler": set(),
        "dask-worker": {"rows-reader"},
        "worker-of-the-cluster": {"rows-writer", "stream-dp"},
    }.items():
        container = _container(documents, name)
        sources = container.get("envFrom", ())
        given = {one["secretRef"]["name"] for one in sources if "secretRef" in one}
        found += [f"{name}: {secret}" for secret in given ^ secrets]
        found += [
            f"{name}: {one['name']}"
            for one in container["env"]
            if name != "worker-of-the-cluster" and "REDIS" in one["name"]
        ]
    pod = _pod(documents, "worker-of-the-cluster")
    container = _container(documents, "worker-of-the-cluster")
    environment = {one["name"]: one.get("value", "") for one in container["env"]}
    wanted = {
        "STREAM_DP_COUNT_WITH": "tls://dask-scheduler:8786",
        "STREAM_DP_COUNT_TLS_CA": "/etc/dask/tls.crt",
        "STREAM_DP_COUNT_TLS_CERT": "/etc/dask/tls.crt",
        "STREAM_DP_COUNT_TLS_KEY": "/etc/dask/tls.key",
    }
    found += [name for name, value in wanted.items() if environment.get(name) != value]
    return found + unmet({"the worker has a certificate": CERTIFICATE in pod["volumes"]})


def ways_to_the_workers(documents: Document) -> list[str]:
    """Who monitors has the figures and no page; who looks at pages shows a token for the figures."""
    container = _container(documents, "worker")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    found = []
    for rule in documents["NetworkPolicy/worker"]["spec"]["ingress"]:
        labels = [source["namespaceSelector"].get("matchLabels", {}) for source in rule["from"]]
        reached = [port["port"] for port in rule["ports"]]
        if (labels, reached) not in (
            ([{"stream-dp/monitors": "true"}], [ports["metrics"]]),
            ([{"stream-dp/looks": "true"}], [ports["pages"]]),
        ):
            found.append(f"{reached} by {labels}")
    return found


def ways_out(documents: Document) -> list[str]:
    """Pods reach what each of them needs, and names; the store reaches nothing."""

    def labelled(name: str) -> Document:
        return {"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}

    def of_namespace(name: str) -> Document:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    names = {
        **of_namespace("kube-system"),
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    everybody = {"worker", "counter", "topics", "gateway", "dask-scheduler", "dask-worker"}
    known = {
        53: (names, everybody),
        443: (of_namespace("objects"), {"worker", "dask-worker"}),
        6379: (labelled("store"), {"worker", "counter"}),
        8786: (labelled("dask-scheduler"), {"worker", "dask-worker"}),
        8789: (labelled("dask-worker"), {"dask-scheduler"}),
        9093: (of_namespace("kafka"), {"worker", "counter", "topics", "gateway"}),
    }
    found = []
    for policy in documents.values():
        if policy["kind"] != "NetworkPolicy":
            continue
        spec = policy["spec"]
        leaving = {*spec["podSelector"].get("matchExpressions", [{"values": []}])[0]["values"]}
        for rule in spec.get("egress", ()):
            ports = {port["port"] for port in rule.get("ports", ())}
            wanted, may = known[min(ports)] if ports & known.keys() else ({}, set())
            if len(ports) != 1 or rule.get("to") != [wanted] or not leaving or leaving - may:
                found.append(f"{policy['metadata']['name']}: {ports} of {rule.get('to')}")
    return found


def unprotected_traffic(documents: Document) -> list[str]:
    """The store asks for a password and speaks TLS alone; so do the brokers; the Secrets must be there."""
    given = _store_flags(documents)
    needed = {
        "--port": "0",
        "--tls-port": "6379",
        "--include": "/etc/valkey/password.conf",
        "--tls-cert-file": "/etc/valkey/tls.crt",
        "--tls-key-file": "/etc/valkey/tls.key",
        "--tls-ca-cert-file": "/etc/valkey/tls.crt",
    }
    found = [name for name, value in needed.items() if given.get(name) != value]
    lines = (FOLDER / "base/settings.env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    protocol = settings["STREAM_DP_KAFKA_SECURITY_PROTOCOL"]
    found += unmet({"the brokers ask who it is": protocol == "SASL_SSL"})
    found += [name for name in settings if name == "STREAM_DP_REDIS_URL"]  # it has a password
    brokers: Document = {"/etc/kafka": {"secretName": "kafka-ca"}}
    rows: Document = {"secretName": "store", "items": [{"key": "tls.crt", "path": "ca.crt"}]}
    for name, more in {
        "topics": {},
        "worker": {"/etc/store": rows},
        "counter": {"/etc/store": rows},
    }.items():
        pod, container = _pod(documents, name), _container(documents, name)
        secrets = {volume["name"]: volume.get("secret") for volume in pod["volumes"]}
        there = {m["mountPath"]: secrets[m["name"]] for m in container["volumeMounts"]}
        passwords = {"secretRef": {"name": "stream-dp"}}
        found += unmet(
            {
                f"{name} waits for its passwords": passwords in container["envFrom"],
                f"{name} can check who answers": there == {**there, **brokers, **more},
            }
        )
    return found


def _store_flags(documents: Document) -> dict[str, str]:
    return flags_of(_container(documents, "store")["args"])


def settings_that_a_view_does_not_need(documents: Document) -> list[str]:
    found = what_a_view_does_not_need(_store_flags(documents))
    store = documents["Deployment/store"]["spec"]
    if store["replicas"] != 1 or store.get("strategy") != {"type": "Recreate"}:
        found.append("two of them at once")
    return found + [v["name"] for v in _pod(documents, "store")["volumes"] if "secret" not in v]


MIB = {"mb": 1, "gb": 1024, "Mi": 1, "Gi": 1024}


def memory_that_the_store_may_not_leave(documents: Document) -> list[str]:
    limit = _container(documents, "store")["resources"]["limits"]["memory"]
    texts = _store_flags(documents).get("--maxmemory", "0mb"), limit
    return too_much_memory(*(int(text[:-2]) * MIB[text[-2:]] for text in texts))


def ways_to_run_two_releases_at_once(documents: Document) -> list[str]:
    """The upgrade rule: all workers are stopped before a new one starts."""
    found = {}
    for document in documents.values():
        spec, name = document.get("spec", {}), document["metadata"]["name"]
        if "template" in spec and _container(documents, name).get("args", [])[:1] == ["worker"]:
            wanted, field = {
                "StatefulSet": ("OnDelete", "updateStrategy"),
                "Deployment": ("Recreate", "strategy"),
            }[document["kind"]]
            found[f"{name}: {field}"] = spec.get(field, {}).get("type") == wanted
    return unmet(found)


def unknown_settings(documents: Document) -> list[str]:
    fields = WorkerSettings.model_fields | GatewaySettings.model_fields
    known = {f"STREAM_DP_{name.upper()}" for name in fields}
    files = (FOLDER / "base/settings.env", FOLDER / "cluster/rows.env")
    given = {line.partition("=")[0] for file in files for line in file.read_text().splitlines()}
    for _, pod in pods(documents):
        for container in pod["containers"]:
            given |= {variable["name"] for variable in container.get("env", ())}
    return sorted(name for name in given - known if not name.startswith("DASK_"))


def _pod(documents: Document, name: str) -> Document:
    return dict(pods(documents))[name]


def _container(documents: Document, name: str) -> Document:
    (container,) = _pod(documents, name)["containers"]
    return dict(container)


POD = "spec template spec"
WORKER = f"StatefulSet/worker {POD} containers 0"
STORE, GATEWAY, SCHEDULER, COUNTING = (
    f"Deployment/{name} {POD} containers 0"
    for name in ("store", "gateway", "dask-scheduler", "dask-worker")
)
ANYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}]
OF_THE_CLUSTER = f"StatefulSet/worker-of-the-cluster {POD}"
ASKING = "spec ingress 0 from 0 podSelector matchExpressions 0 values +"
CHECKS: Breaks = {
    loose_containers: [
        (f"StatefulSet/worker {POD} securityContext", {}),
        (f"Deployment/counter {POD} containers 0 resources limits", None),
    ],
    ways_to_the_store: [
        (f"NetworkPolicy/store {ASKING}", "topics"),
        ("NetworkPolicy/nothing spec policyTypes", ["Ingress"]),
    ],
    ways_to_the_cluster: [
        (f"NetworkPolicy/dask-scheduler {ASKING}", "gateway"),
        (f"NetworkPolicy/dask-worker {ASKING}", "worker"),
        ("NetworkPolicy/dask-worker spec ingress 0 from 0", {"namespaceSelector": {}}),
        ("NetworkPolicy/dask-scheduler spec ingress 0 ports +", {"port": 8787}),
        (f"{SCHEDULER} args 1", "--protocol=tcp"),
        (f"{COUNTING} args 1", "tcp://dask-scheduler:8786"),
        (f"{COUNTING} args 4", None),
        (f"{SCHEDULER} args 6", "--dashboard"),
        (f"{SCHEDULER} args 7", None),
        (f"{COUNTING} env 0 value", "false"),
        (f"{SCHEDULER} env 1", {"name": "DASK_DISTRIBUTED__SCHEDULER__HTTP", "value": ""}),
        (f"{SCHEDULER} ports +", {"name": "dashboard", "containerPort": 8787}),
        ("Service/dask-scheduler spec ports +", {"name": "dashboard", "port": 8787}),
        (f"Deployment/dask-worker {POD} volumes 1", {"name": "dask", "emptyDir": {}}),
    ],
    rights_of_the_cluster_that_it_does_not_need: [
        (f"{COUNTING} envFrom 1 secretRef name", "rows-writer"),
        (f"{COUNTING} env +", {"name": "STREAM_DP_REDIS_URL", "value": "rediss://store"}),
        (f"{SCHEDULER} envFrom", [{"secretRef": {"name": "stream-dp"}}]),
        (f"{OF_THE_CLUSTER} containers 0 env 4 value", "tcp://dask-scheduler:8786"),
        (f"{OF_THE_CLUSTER} volumes -1", None),
    ],
    ways_to_the_workers: [
        ("NetworkPolicy/worker spec ingress 1 ports +", {"port": 9464}),
        ("NetworkPolicy/worker spec ingress 0 from 0 namespaceSelector", {}),
    ],
    ways_of_the_gateway_to_rows: [
        (f"{GATEWAY} envFrom +", {"secretRef": {"name": "stream-dp"}}),
        (f"{GATEWAY} env +", {"name": "STREAM_DP_REDIS_URL", "value": "rediss://store"}),
        (f"{GATEWAY} env +", {"name": "STREAM_DP_GATEWAY_OPEN", "value": "true"}),
        (f"{GATEWAY} env 3", {"name": "STREAM_DP_GATEWAY_PORT", "value": "5433"}),
    ],
    settings_that_a_view_does_not_need: [
        (f"{STORE} args 2", "yes"),
        (f"{STORE} args 8", "noeviction"),
        ("Deployment/store spec strategy", None),
        (f"Deployment/store {POD} volumes +", {"name": "data", "emptyDir": {}}),
    ],
    memory_that_the_store_may_not_leave: [
        (f"{STORE} args 6", "2gb"),
        (f"{STORE} args 5", "--no-limit"),
    ],
    ways_to_run_two_releases_at_once: [
        ("StatefulSet/worker spec updateStrategy", None),
        ("Deployment/counter spec strategy type", "RollingUpdate"),
        ("Deployment/dask-worker spec strategy type", "RollingUpdate"),
    ],
    ways_out: [
        ("NetworkPolicy/to-the-brokers spec egress 0 to", None),
        ("NetworkPolicy/to-the-brokers spec egress +", {"ports": [{"port": 443}], "to": ANYWHERE}),
        ("NetworkPolicy/store spec egress", [{}]),
        ("NetworkPolicy/to-the-store spec podSelector matchExpressions 0 values +", "dask-worker"),
        ("NetworkPolicy/to-the-bucket spec podSelector matchExpressions 0 values +", "gateway"),
        ("NetworkPolicy/to-the-bucket spec egress 0 to", ANYWHERE),
    ],
    unprotected_traffic: [
        (f"{STORE} args 12", "6380"),
        (f"{STORE} args 13", "--port"),
        (f"{WORKER} envFrom 1 secretRef optional", True),
        (f"Job/topics {POD} volumes 1", {"name": "kafka-ca", "emptyDir": {}}),
    ],
    unknown_settings: [(f"{WORKER} env +", {"name": "STREAM_DP_REDIS"})],
}


@with_breaks(CHECKS)
def test_the_manifests_pass_and_a_broken_copy_does_not(
    check: Check, place: str, value: object
) -> None:
    assert check(DOCUMENTS) == []
    assert check(broken(DOCUMENTS, place, value)) != []


def test_images_are_of_this_release() -> None:
    images = {c["image"] for _, pod in pods(DOCUMENTS) for c in pod["containers"]}
    assert images == {f"stream-dp:{__version__}", "valkey/valkey:8.1"}


def test_a_worker_keeps_its_name_in_the_group() -> None:
    (name,) = [
        v for v in _container(DOCUMENTS, "worker")["env"] if v["name"] == "STREAM_DP_INSTANCE_ID"
    ]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert DOCUMENTS["PodDisruptionBudget/worker"]["spec"]["maxUnavailable"] == 1


def test_the_example_source_is_one() -> None:
    TopicSource.read(json.loads((FOLDER / "counter/source.json").read_text()))


@pytest.mark.parametrize("overlay", ["base", "counter", "gateway", "cluster"])
def test_kustomize_takes_every_file(overlay: str) -> None:
    folder = FOLDER / overlay
    listed = set(YAML(typ="safe").load(folder / "kustomization.yaml")["resources"])
    assert {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"} == {
        name for name in listed if name.endswith(".yaml")
    }
    if shutil.which("kubectl") is None:
        return  # the files themselves were checked above
    built = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    documents = list(YAML(typ="safe").load_all(built.stdout))
    for document in documents:
        kubernetes_validate.validate(document, ANY_VERSION, strict=True)
    assert {d["metadata"].get("namespace", "stream-dp") for d in documents} == {"stream-dp"}
    if overlay == "cluster":
        (worker,) = (d for d in documents if d["kind"] == "StatefulSet")
        pod = worker["spec"]["template"]["spec"]
        assert pod["volumes"] == _pod(DOCUMENTS, "worker-of-the-cluster")["volumes"]
