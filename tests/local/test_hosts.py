"""The names that pods of process nodes find in /etc/hosts."""

from gangsched.local.agent.hosts import lines_of, service_names


def pod(namespace, app, **spec):
    return {"metadata": {"namespace": namespace, "labels": {"app": app}}, "spec": spec}


def service(namespace, name, app):
    selector = {"app": app} if app else {}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"selector": selector}}


def test_other_namespaces_are_found_by_full_names_only():
    pods = [(pod("a", "head"), "10.88.0.2"), (pod("b", "head"), "10.88.0.3")]
    services = [service("a", "ray", "head"), service("b", "ray", "head"), service("b", "all", None)]
    names = service_names(services, pods)
    assert lines_of(names, "a") == [
        "10.88.0.2 ray ray.a ray.a.svc ray.a.svc.cluster.local",
        "10.88.0.3 ray.b ray.b.svc ray.b.svc.cluster.local",
    ]
    # The names of its own namespace come first.
    assert lines_of(names, "b")[0] == "10.88.0.3 ray ray.b ray.b.svc ray.b.svc.cluster.local"


def test_a_service_selects_no_pod_of_another_namespace():
    names = service_names([service("a", "kubernetes", "head")], [(pod("b", "head"), "10.88.0.3")])
    assert names == []


def test_a_pod_with_its_service_as_subdomain_has_a_name_of_its_own_first():
    names = service_names(
        [service("a", "ray", "head")],
        [(pod("a", "head", subdomain="ray", hostname="first"), "10.88.0.2")],
    )
    assert [name.host for name in names] == ["first.ray", "ray"]
