"""UpdateFeatures: finalises a version of the metadata that all brokers support.

`cordwood cluster upgrade`, `kafka-features.sh` and `Admin.updateFeatures` send it. A request is carried out as a whole
or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.metadata.versions import FEATURE
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Request, serves
from cordwood.wire.api_versions import FinalizedFeature, SupportedFeature
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.update_features import UpdateFeatures

TRANSACTIONS = "transaction.version"
TRANSACTIONS_LEVEL = 2
"""Version 2 of transactions (KIP-890): clients that read this need no AddPartitionsToTxn and get new epochs."""

_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3
_RESULTS_UNTIL = 1
"""Up to this version each feature has an error of its own in the response."""


class FeatureRooms(Protocol):
    """The rooms of a node that this handler needs."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def supported_features(image: ClusterImage) -> tuple[SupportedFeature, ...]:
    lowest, highest = image.metadata_versions
    return (SupportedFeature(TRANSACTIONS, 0, TRANSACTIONS_LEVEL), SupportedFeature(FEATURE, lowest, highest))


def finalized_features(image: ClusterImage) -> tuple[FinalizedFeature, ...]:
    version = image.metadata_version
    return (
        FinalizedFeature(TRANSACTIONS, TRANSACTIONS_LEVEL, TRANSACTIONS_LEVEL),
        FinalizedFeature(FEATURE, version, version),
    )


def finalized_features_epoch(image: ClusterImage) -> int:
    """Grows with every change of the finalised features: clients ignore features without a higher epoch."""
    return max(1, image.metadata_version_revision)


def update_features(rooms: FeatureRooms, request: Request[UpdateFeatures]) -> None:
    body = request.decode()
    names = [update.feature for update in body.feature_updates]
    validate_only = request.version > 0 and body.validate_only
    try:
        refusal = request.judge.refusal(Operation.ALTER, ResourceKind.CLUSTER)
        if refusal is not None:
            raise refusal
        if len(set(names)) < len(names):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A feature is named twice.")
        for update in body.feature_updates:
            _check(rooms.image, update, request.version)
    except ProtocolError as refusal:
        _answer(request, names, refusal)
        return
    wanted = next((update.max_version_level for update in body.feature_updates if update.feature == FEATURE), None)
    if wanted is None:
        _answer(request, names, None)
        return

    def finalised(result: Exception | None) -> None:
        outcomes: dict[str, Exception | None] | Exception = {FEATURE: None}
        if result is not None:
            outcomes = {FEATURE: result} if isinstance(result, ProtocolError) else result
        ((_, outcome),) = each_outcome(rooms.reports, outcomes, [FEATURE])
        _answer(request, names, outcome)

    rooms.loop.effects.metadata(
        lambda writer: writer.finalise_metadata_version(wanted, validate_only=validate_only), finalised
    )


def _check(image: ClusterImage, update: UpdateFeatures.RequestFeatureUpdate, request_version: int) -> None:
    """Raises ProtocolError for an update that no state of the cluster would allow."""
    name, level = update.feature, update.max_version_level
    if request_version > 0 and not _UPGRADE <= update.upgrade_type <= _UNSAFE_DOWNGRADE:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Feature {name}: {update.upgrade_type} is no type of upgrade."
        )
    if name == TRANSACTIONS and level == TRANSACTIONS_LEVEL:
        return
    if name == TRANSACTIONS:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Cordwood always uses {TRANSACTIONS} {TRANSACTIONS_LEVEL}, not {level}."
        )
    if name != FEATURE:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"There is no feature {name} here: the version of the metadata is {FEATURE}.",
        )
    if level < 1:
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, f"{FEATURE} cannot be taken away.")
    is_upgrade = update.upgrade_type == _UPGRADE if request_version > 0 else not update.allow_downgrade
    if level > image.metadata_version and not is_upgrade:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"A downgrade to {FEATURE} {level} was asked for, and {image.metadata_version} is the finalised one.",
        )


def _answer(request: Request[UpdateFeatures], names: list[str], outcome: object) -> None:
    """Answers the request. A refusal is one for all updates: as in Kafka, it has no results for single features."""
    told = status(outcome)
    each: list[UpdateFeatures.AnswerResult] = []
    if request.version <= _RESULTS_UNTIL and not told["error_code"]:
        each = [{"feature": name, "error_code": ErrorCode.NONE, "error_message": None} for name in names]
    request.answer(**told, results=each)


HANDLERS = (serves(ApiKey.UPDATE_FEATURES, 0, 2, update_features),)
