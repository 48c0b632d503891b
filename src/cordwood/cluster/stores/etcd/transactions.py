"""Transactions of the store's contract as messages of etcd's."""

from collections.abc import Sequence
from typing import Any

from cordwood.cluster.stores.etcd import messages
from cordwood.cluster.stores.etcd.keys import KeyRange
from cordwood.cluster.stores.etcd.messages import MESSAGES
from cordwood.cluster.stores.interface import Compare, Delete, Operation, Put, Relation, Target

_RESULTS = {
    Relation.EQUAL: messages.EQUAL,
    Relation.NOT_EQUAL: messages.NOT_EQUAL,
    Relation.LESS: messages.LESS,
    Relation.GREATER: messages.GREATER,
}
_TARGETS = {
    Target.CREATE_REVISION: messages.CREATE_TARGET,
    Target.MOD_REVISION: messages.MOD_TARGET,
    Target.VALUE: messages.VALUE_TARGET,
}


def txn_request(prefix: str, compares: Sequence[Compare], operations: Sequence[Operation]) -> Any:
    """The request of a transaction whose keys are below the cluster's prefix."""
    request = MESSAGES["TxnRequest"]()
    for compare in compares:
        added = request.compare.add(
            result=_RESULTS[compare.relation], target=_TARGETS[compare.target], key=(prefix + compare.key).encode()
        )
        setattr(added, compare.target.value, compare.operand)
    for operation in operations:
        change = request.success.add()
        if isinstance(operation, Put):
            put = change.request_put
            put.key, put.value, put.lease = (prefix + operation.key).encode(), operation.value, operation.lease
        elif isinstance(operation, Delete):
            change.request_delete_range.key = (prefix + operation.key).encode()
        else:
            keys = KeyRange(prefix, operation.prefix)
            change.request_delete_range.key, change.request_delete_range.range_end = keys.key, keys.end
    return request
