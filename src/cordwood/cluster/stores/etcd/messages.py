"""The messages of etcd's API that the store uses: declared here, made into classes by protobuf when first imported.

A message has only the fields that the store reads or writes; protobuf skips the others. The declarations replace a
.proto file and its generated module: a generated module is bound to a range of protobuf's releases, and needs protoc.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DECLARED = {
    "ResponseHeader": "uint64 cluster_id 1, int64 revision 3, uint64 raft_term 4",
    "KeyValue": "bytes key 1, int64 create_revision 2, int64 mod_revision 3, bytes value 5, int64 lease 6",
    "Event": "int32 type 1, KeyValue kv 2",
    "RangeRequest": "bytes key 1, bytes range_end 2, int64 limit 3, int64 revision 4, bool keys_only 8",
    "RangeResponse": "ResponseHeader header 1, repeated KeyValue kvs 2, bool more 3",
    "PutRequest": "bytes key 1, bytes value 2, int64 lease 3",
    "DeleteRangeRequest": "bytes key 1, bytes range_end 2",
    "RequestOp": "PutRequest request_put 2, DeleteRangeRequest request_delete_range 3",
    "Compare": "int32 result 1, int32 target 2, bytes key 3, int64 create_revision 5, int64 mod_revision 6, "
    "bytes value 7",
    "TxnRequest": "repeated Compare compare 1, repeated RequestOp success 2",
    "TxnResponse": "ResponseHeader header 1, bool succeeded 2",
    "CompactionRequest": "int64 revision 1",
    "CompactionResponse": "ResponseHeader header 1",
    "WatchCreateRequest": "bytes key 1, bytes range_end 2, int64 start_revision 3",
    "WatchProgressRequest": "",
    "WatchRequest": "WatchCreateRequest create_request 1, WatchProgressRequest progress_request 3",
    "WatchResponse": "ResponseHeader header 1, bool created 3, bool canceled 4, int64 compact_revision 5, "
    "string cancel_reason 6, repeated Event events 11",
    "LeaseGrantRequest": "int64 TTL 1, int64 ID 2",
    "LeaseGrantResponse": "ResponseHeader header 1, int64 ID 2, int64 TTL 3, string error 4",
    "LeaseRevokeRequest": "int64 ID 1",
    "LeaseRevokeResponse": "ResponseHeader header 1",
    "LeaseKeepAliveRequest": "int64 ID 1",
    "LeaseKeepAliveResponse": "ResponseHeader header 1, int64 ID 2, int64 TTL 3",
    "StatusRequest": "",
    "StatusResponse": "ResponseHeader header 1, string version 2, uint64 leader 4, bool is_learner 10",
    "AuthenticateRequest": "string name 1, string password 2",
    "AuthenticateResponse": "ResponseHeader header 1, string token 2",
}
"""The fields of each message: repeated or not, type, name, number."""

_PACKAGE = "cordwood.etcd"


def _classes() -> dict[str, Any]:
    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {name: getattr(field_type, f"TYPE_{name.upper()}") for name in _SCALARS}
    file = descriptor_pb2.FileDescriptorProto(name="cordwood/etcd.proto", package=_PACKAGE, syntax="proto3")
    for message_name, declared in _DECLARED.items():
        message = file.message_type.add(name=message_name)
        for each in filter(None, declared.split(", ")):
            *repeated, type_name, name, number = each.split()
            field = message.field.add(name=name, number=int(number))
            field.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if type_name in scalars:
                field.type = scalars[type_name]
            else:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{type_name}"
    # The pool is not protobuf's own: names of other packages in this process do not matter.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _DECLARED
    }


_SCALARS = ("bool", "bytes", "int32", "int64", "string", "uint64")
MESSAGES: Final = _classes()
"""The classes of the messages, by name. Their types are known to protobuf alone."""

DELETED: Final = 1
"""The type of an event that deletes."""
EQUAL, GREATER, LESS, NOT_EQUAL = range(4)
"""Compare.result."""
CREATE_TARGET, MOD_TARGET, VALUE_TARGET = 1, 2, 3
"""Compare.target."""
