"""Takes the objects that are exchanged out of Kubernetes' OpenAPI document, as kubernetes-validate carries it.

The package holds the document of each release, converted to JSON schemas. In the strict ones an object has the
fields that the document names and no others.
"""

import json
import sys
import zipfile

RELEASE = "v1.37.0"
WANTED = [
    "io.k8s.api.core.v1.Secret",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.version.Info",
]
PREFIX = "#/$defs/"


def named(node):
    """The definitions that a part of the document refers to."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and value.startswith(PREFIX):
                yield value.removeprefix(PREFIX)
            else:
                yield from named(value)
    elif isinstance(node, list):
        for value in node:
            yield from named(value)


def main(package, target):
    place = f"kubernetes_validate/kubernetes-json-schema/{RELEASE}-local-strict/_definitions.json"
    with zipfile.ZipFile(package) as archive:
        every = json.loads(archive.read(place))["$defs"]
    kept, left = {}, list(WANTED)
    while left:
        name = left.pop()
        if name not in kept:
            kept[name] = every[name]
            left.extend(named(every[name]))
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"release": RELEASE, "$defs": kept}, file)


main(*sys.argv[1:])
