"""The manifests are valid, and keep the promises that the compose file keeps; broken copies do not."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from stream_dp import __version__
from stream_dp.pipeline.intake.sources import TopicSource
from stream_dp.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
ANY_VERSION = "1.33"

Document = dict[str, Any]


def manifests() -> list[Document]:
    files = [path for path in sorted(FOLDER.glob("*/*.yaml")) if path.name != "kustomization.yaml"]
    return [document for path in files for document in YAML(typ="safe").load_all(path)]


DOCUMENTS = manifests()


def named(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda d: f"{d['kind']}-{d['metadata']['name']}"
)
def test_a_manifest_is_what_kubernetes_takes(document: Document) -> None:
    kubernetes_validate.validate(document, ANY_VERSION, strict=True)
    misspelt = {**document, "spec": {**document.get("spec", {}), "replica": 1}}
    if document["kind"] != "Namespace":
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(misspelt, ANY_VERSION, strict=True)


def loose_containers(documents: list[Document]) -> list[str]:
    found = []
    for name, pod in pods(documents):
        if pod["securityContext"].get("runAsNonRoot") is not True:
            found.append(f"{name}: may be root")
        if pod.get("automountServiceAccountToken") is not False:
            found.append(f"{name}: has a token of the cluster")
        for container in pod["containers"]:
            context = container["securityContext"]
            if context.get("readOnlyRootFilesystem") is not True:
                found.append(f"{name}: writes to its root")
            if context.get("allowPrivilegeEscalation") is not False:
                found.append(f"{name}: may gain rights")
            if context.get("capabilities") != {"drop": ["ALL"]}:
                found.append(f"{name}: has capabilities")
            if "limits" not in container["resources"]:
                found.append(f"{name}: has no limits")
    return found


def ways_to_the_store(documents: list[Document]) -> list[str]:
    nothing = named(documents, "NetworkPolicy", "nothing")["spec"]
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    found = [] if nothing == closed else ["all is open"]
    policy = named(documents, "NetworkPolicy", "store")["spec"]
    for rule in policy["ingress"]:
        for source in rule["from"]:
            (expression,) = source["podSelector"]["matchExpressions"]
            found += sorted({*expression["values"]} - {"worker", "counter"})
    return found


def ways_to_the_workers(documents: list[Document]) -> list[str]:
    """Who monitors has the figures and no page; who looks at pages shows a token for the figures."""
    (container,) = _pod(documents, "worker")["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    found = []
    for rule in named(documents, "NetworkPolicy", "worker")["spec"]["ingress"]:
        labels = [source["namespaceSelector"].get("matchLabels", {}) for source in rule["from"]]
        reached = [port["port"] for port in rule["ports"]]
        if (labels, reached) not in (
            ([{"stream-dp/monitors": "true"}], [ports["metrics"]]),
            ([{"stream-dp/looks": "true"}], [ports["pages"]]),
        ):
            found.append(f"{reached} by {labels}")
    return found


def ways_out(documents: list[Document]) -> list[str]:
    """Pods reach the store, the brokers by TLS, and names; the store reaches nothing."""
    store = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "store"}}}
    brokers = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kafka"}}}
    names = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    found = []
    for policy in documents:
        if policy["kind"] != "NetworkPolicy":
            continue
        spec = policy["spec"]
        leaving = spec["podSelector"].get("matchExpressions", [{"values": []}])[0]["values"]
        for rule in spec.get("egress", ()):
            ports = {port["port"] for port in rule.get("ports", ())}
            known = {6379: store, 9093: brokers, 53: names}
            wanted = [known[port] for port in sorted(ports & known.keys())]
            if len(ports) != 1 or rule.get("to") != wanted or "store" in leaving or not leaving:
                found.append(f"{policy['metadata']['name']}: {ports} of {rule.get('to')}")
    return found


def unprotected_traffic(documents: list[Document]) -> list[str]:
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
    if settings["STREAM_DP_KAFKA_SECURITY_PROTOCOL"] != "SASL_SSL":
        found.append("the brokers ask for nothing")
    found += [name for name in settings if name == "STREAM_DP_REDIS_URL"]  # it has a password
    mounted: Document = {"/etc/kafka": {"secretName": "kafka-ca"}}
    rows: Document = {"secretName": "store", "items": [{"key": "tls.crt", "path": "ca.crt"}]}
    for name, wanted in {
        "topics": mounted,
        "worker": {**mounted, "/etc/store": rows},
        "counter": {**mounted, "/etc/store": rows},
    }.items():
        pod = _pod(documents, name)
        (container,) = pod["containers"]
        if {"secretRef": {"name": "stream-dp"}} not in container["envFrom"]:
            found.append(f"{name} starts without its passwords")
        secrets = {volume["name"]: volume.get("secret") for volume in pod["volumes"]}
        there = {m["mountPath"]: secrets[m["name"]] for m in container["volumeMounts"]}
        if {path: there.get(path) for path in wanted} != wanted:
            found.append(f"{name} cannot check who answers")
    return found


def _store_flags(documents: list[Document]) -> dict[str, str]:
    (container,) = _pod(documents, "store")["containers"]
    return dict(zip(container["args"][1::2], container["args"][2::2], strict=True))


def settings_that_a_view_does_not_need(documents: list[Document]) -> list[str]:
    """A store without a disk that refuses writes when it is full would be behind for good."""
    given = _store_flags(documents)
    needed = {"--appendonly": "no", "--maxmemory-policy": "allkeys-lru", "--save": ""}
    found = [name for name, value in needed.items() if given.get(name) != value]
    store = named(documents, "Deployment", "store")["spec"]
    if store["replicas"] != 1 or store.get("strategy") != {"type": "Recreate"}:
        found.append("two of them at once")
    volumes = [v["name"] for v in _pod(documents, "store")["volumes"] if "secret" not in v]
    return found + volumes


MIB = {"mb": 1, "gb": 1024, "Mi": 1, "Gi": 1024}


def mebibytes(text: str) -> int:
    return int(text[:-2]) * MIB[text[-2:]]


def memory_that_the_store_may_not_leave(documents: list[Document]) -> list[str]:
    """A store that reaches the container's limit is killed; one that reaches maxmemory drops keys."""
    (container,) = _pod(documents, "store")["containers"]
    given = _store_flags(documents)
    limit = mebibytes(container["resources"]["limits"]["memory"])
    most = mebibytes(given.get("--maxmemory", "0mb"))
    return [] if 0 < most <= 0.75 * limit else [f"{most} of {limit} MiB"]


def ways_to_run_two_releases_at_once(documents: list[Document]) -> list[str]:
    """The upgrade rule: all workers are stopped before a new one starts."""
    found = []
    for document in documents:
        (args,) = [
            container.get("args", [])
            for container in document.get("spec", {})
            .get("template", {})
            .get("spec", {})
            .get("containers", [{}])
        ]
        if args[:1] != ["worker"]:
            continue
        spec = document["spec"]
        name, kind = document["metadata"]["name"], document["kind"]
        wanted, given = {
            "StatefulSet": ("OnDelete", spec.get("updateStrategy", {}).get("type")),
            "Deployment": ("Recreate", spec.get("strategy", {}).get("type")),
        }[kind]
        if given != wanted:
            found.append(f"{name}: {given}")
    return found


def unknown_settings(documents: list[Document]) -> list[str]:
    known = {f"STREAM_DP_{name.upper()}" for name in WorkerSettings.model_fields}
    lines = (FOLDER / "base/settings.env").read_text().splitlines()
    given = {line.partition("=")[0] for line in lines}
    for _, pod in pods(documents):
        for container in pod["containers"]:
            given |= {variable["name"] for variable in container.get("env", ())}
    return sorted(given - known)


def _pod(documents: list[Document], name: str) -> Document:
    return dict(pods(documents))[name]


CHECKS: list[tuple[Callable[[list[Document]], list[str]], Callable[[list[Document]], object]]] = [
    (loose_containers, lambda d: _pod(d, "worker")["securityContext"].clear()),
    (loose_containers, lambda d: _pod(d, "counter")["containers"][0]["resources"].pop("limits")),
    (
        ways_to_the_store,
        lambda d: named(d, "NetworkPolicy", "store")["spec"]["ingress"][0]["from"][0][
            "podSelector"
        ]["matchExpressions"][0]["values"].append("topics"),
    ),
    (
        ways_to_the_workers,
        lambda d: named(d, "NetworkPolicy", "worker")["spec"]["ingress"][1]["ports"].append(
            {"port": 9464}
        ),
    ),
    (
        ways_to_the_workers,
        lambda d: named(d, "NetworkPolicy", "worker")["spec"]["ingress"][0]["from"][0].update(
            namespaceSelector={}
        ),
    ),
    (
        settings_that_a_view_does_not_need,
        lambda d: _pod(d, "store")["containers"][0]["args"].__setitem__(2, "yes"),
    ),
    (
        settings_that_a_view_does_not_need,
        lambda d: _pod(d, "store")["containers"][0]["args"].__setitem__(8, "noeviction"),
    ),
    (
        settings_that_a_view_does_not_need,
        lambda d: named(d, "Deployment", "store")["spec"].pop("strategy"),
    ),
    (
        settings_that_a_view_does_not_need,
        lambda d: _pod(d, "store")["volumes"].append({"name": "data", "emptyDir": {}}),
    ),
    (
        memory_that_the_store_may_not_leave,
        lambda d: _pod(d, "store")["containers"][0]["args"].__setitem__(6, "2gb"),
    ),
    (
        memory_that_the_store_may_not_leave,
        lambda d: _pod(d, "store")["containers"][0]["args"].__delitem__(slice(5, 7)),
    ),
    (
        ways_to_run_two_releases_at_once,
        lambda d: named(d, "StatefulSet", "worker")["spec"].pop("updateStrategy"),
    ),
    (
        ways_to_run_two_releases_at_once,
        lambda d: named(d, "Deployment", "counter")["spec"]["strategy"].update(
            type="RollingUpdate"
        ),
    ),
    (
        ways_to_the_store,
        lambda d: named(d, "NetworkPolicy", "nothing")["spec"]["policyTypes"].remove("Egress"),
    ),
    (
        ways_out,
        lambda d: named(d, "NetworkPolicy", "to-the-brokers")["spec"]["egress"][0].pop("to"),
    ),
    (
        ways_out,
        lambda d: named(d, "NetworkPolicy", "to-the-brokers")["spec"]["egress"].append(
            {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}
        ),
    ),
    (
        ways_out,
        lambda d: named(d, "NetworkPolicy", "store")["spec"].update(egress=[{}]),
    ),
    (
        unprotected_traffic,
        lambda d: _pod(d, "store")["containers"][0]["args"].__setitem__(12, "6380"),
    ),
    (
        unprotected_traffic,
        lambda d: _pod(d, "store")["containers"][0]["args"].__delitem__(slice(13, 15)),
    ),
    (
        unprotected_traffic,
        lambda d: _pod(d, "worker")["containers"][0]["envFrom"][1]["secretRef"].update(
            optional=True
        ),
    ),
    (
        unprotected_traffic,
        lambda d: _pod(d, "topics")["volumes"].__setitem__(1, {"name": "kafka-ca", "emptyDir": {}}),
    ),
    (
        unknown_settings,
        lambda d: _pod(d, "worker")["containers"][0]["env"].append({"name": "STREAM_DP_REDIS"}),
    ),
]


@pytest.mark.parametrize(("check", "damage"), CHECKS)
def test_the_manifests_pass_and_a_broken_copy_does_not(
    check: Callable[[list[Document]], list[str]], damage: Callable[[list[Document]], object]
) -> None:
    assert check(DOCUMENTS) == []
    broken = copy.deepcopy(DOCUMENTS)
    damage(broken)
    assert check(broken) != []


def test_images_are_of_this_release() -> None:
    images = {c["image"] for _, pod in pods(DOCUMENTS) for c in pod["containers"]}
    assert images == {f"stream-dp:{__version__}", "valkey/valkey:8.1"}


def test_a_worker_keeps_its_name_in_the_group() -> None:
    (container,) = _pod(DOCUMENTS, "worker")["containers"]
    (name,) = [v for v in container["env"] if v["name"] == "STREAM_DP_INSTANCE_ID"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert named(DOCUMENTS, "PodDisruptionBudget", "worker")["spec"]["maxUnavailable"] == 1


def test_the_example_source_is_one() -> None:
    TopicSource.read(json.loads((FOLDER / "counter/source.json").read_text()))


@pytest.mark.parametrize("overlay", ["base", "counter"])
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
