"""Generates docs/rights.md from the table of rights.

`python -m cordwood.node.rights_reference > docs/rights.md`, or `make docs`.
"""

import sys

from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.apis import SERVED
from cordwood.node.requests.rights import RIGHTS, Right, Without
from cordwood.wire.apis import Api

_INTRODUCTION = """\
# Rights

The operation and the resource that each request needs, as with Apache Kafka, and what a request without the right
gets. Rights are asked for where `authorizer.class.name` is set; without it everybody may do everything, and the network
protects a broker: its [listeners](configuration.md) and a firewall. This page is generated from the table in
`node/requests/rights.py` (`make docs`).

An embedded broker's `broker.log` belongs to the process that made it and asks nobody.

- The right after "or" does as well.
- *Left out*: the answer is as if the resource did not exist.
- Delegation tokens are renewed, ended and described by their owners, requesters and renewers, who need no right. For
  tokens of others a rule is needed: without an authorizer, in its dry run, and by
  `allow.everyone.if.no.acl.found`, nobody has this right.
- Keys from 10000 on are Cordwood's own. A family of transactions is the transactional id `family:NAME`.

| key | API | versions | operation | on | without it |
| --- | --- | --- | --- | --- | --- |
"""


def _name(operation: Operation, kind: ResourceKind) -> str:
    return f"{operation} of the {kind}"


def _versions(api: Api, right: Right) -> str:
    low = max(api.min_version, right.versions.start)
    high = min(api.max_version, right.versions.stop - 1)
    return str(low) if low == high else f"{low}-{high}"


def _row(api: Api, right: Right) -> str:
    needs = str(right.operation) + "".join(f", or {_name(*other)}" for other in right.instead)
    on = f"the cluster, {right.of}" if right.kind is ResourceKind.CLUSTER and right.of else right.of or "the cluster"
    own = right.without in (Without.LEFT_OUT, Without.NOT_THE_HOLDER)
    without = right.without.value if own else right.kind.refusal.name
    return f"| {api.key} | {api.name} | {_versions(api, right)} | {needs} | {on} | {without} |\n"


def rights_markdown() -> str:
    rows = []
    for key, api in sorted(SERVED.items()):
        rows += [_row(api, right) for right in RIGHTS[key]]
        if not RIGHTS[key]:
            rows.append(f"| {key} | {api.name} | {api.min_version}-{api.max_version} | none | | |\n")
    return _INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(rights_markdown())
