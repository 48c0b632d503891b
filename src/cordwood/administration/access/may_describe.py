"""Asks for the right to describe the cluster before requests whose refusal librdkafka does not survive, or hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AclOperation

from cordwood.model.errors import ErrorCode
from cordwood.model.failure import Failure

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection


def check_may_describe(connection: Connection) -> None:
    """Raises Failure for a principal that may not describe the cluster.

    librdkafka 2.16 ends the process at a refused DescribeUserScramCredentials, and takes a refused DescribeAcls for a
    cluster without rules.
    """
    told = connection.ask(lambda admin: admin.describe_cluster(include_authorized_operations=True))
    # None: the principal may do nothing with the cluster.
    if AclOperation.DESCRIBE not in (told.authorized_operations or ()):
        raise Failure(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name,
            "The right is missing: Describe of the cluster.",
            "a super user may do everything; `cordwood acl add NAME --operation Describe --cluster` gives this right",
        )
