"""Takes what can be asked of a Kubernetes API server out of the client that Kubernetes publishes for Python.

No package carries the OpenAPI document itself. The client is generated from it, one method for each operation, and what
the document says of an operation stands in that method: its path and verb, the parameters that it takes, the types of
its body and the statuses of its answers. They are read from the source; nothing of it is run.
"""

import ast
import json
import sys
import zipfile

MODULES = ["core_v1_api", "core_api", "apis_api", "version_api"]


def texts(node):
    """The texts in a list that is written out."""
    return [item.value for item in node.elts] if isinstance(node, ast.List) else []


def read(function):
    """What the method that makes a request says of it; none where it makes none."""
    found = {"query": [], "content_types": []}
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = node.func
        if called.attr == "append" and getattr(called.value, "id", "") == "_query_params":
            found["query"].append(node.args[0].elts[0].value)
        elif called.attr == "select_header_content_type":
            found["content_types"] = texts(node.args[0])
        elif called.attr == "param_serialize":
            named = {word.arg: word.value for word in node.keywords}
            found["method"] = named["method"].value
            found["path"] = named["resource_path"].value
    return found if "path" in found else None


def statuses(function):
    """The statuses that the method which sends a request knows."""
    for node in ast.walk(function):
        target = getattr(node, "target", None)
        if isinstance(node, ast.AnnAssign) and getattr(target, "id", "") == "_response_types_map":
            return sorted(int(key.value) for key in node.value.keys)
    return []


def main(package, target):
    operations = []
    with zipfile.ZipFile(package) as archive:
        for module in MODULES:
            tree = ast.parse(archive.read(f"kubernetes/client/api/{module}.py"))
            functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            for name, function in functions.items():
                operation = read(function) if name.startswith("_") and name.endswith("_serialize") else None
                if operation:
                    sends = name.removeprefix("_").removesuffix("_serialize") + "_with_http_info"
                    operations.append(operation | {"statuses": statuses(functions[sends])})
    paths = {operation["path"] for operation in operations}
    assert {"/version/", "/api/v1/namespaces/{namespace}/secrets/{name}"} <= paths, "the client is of another shape"
    with open(target, "w", encoding="utf-8") as file:
        json.dump(operations, file)


main(*sys.argv[1:])
