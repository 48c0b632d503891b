"""The lines of the security trail: JSON objects in two classes of OCSF (https://schema.ocsf.io), 3002 Authentication
for log-ins and TLS handshakes, 6003 API Activity for changes and refusals."""

from __future__ import annotations

import json
from typing import Any, Final

from cordwood import __version__
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation
from cordwood.security.trail.events import Event, Told, What

OCSF_VERSION: Final = "1.3.0"
AUTHENTICATION: Final = 3002
API_ACTIVITY: Final = 6003

_CLASSES: Final = {
    AUTHENTICATION: ("Authentication", 3, "Identity & Access Management"),
    API_ACTIVITY: ("API Activity", 6, "Application Activity"),
}
_LOG_INS: Final = frozenset({What.LOG_IN, What.FAILED_LOG_IN, What.FAILED_HANDSHAKE})
_SUCCEEDED: Final = frozenset({What.CHANGE, What.LOG_IN, What.DRY_REFUSAL})

_CREATE, _READ, _UPDATE, _DELETE, _OTHER = (1, "Create"), (2, "Read"), (3, "Update"), (4, "Delete"), (99, "Other")
_LOG_ON = (1, "Logon")
_ACTIVITIES: Final = {
    Operation.CREATE: _CREATE,
    Operation.READ: _READ,
    Operation.DESCRIBE: _READ,
    Operation.DESCRIBE_CONFIGS: _READ,
    Operation.WRITE: _UPDATE,
    Operation.IDEMPOTENT_WRITE: _UPDATE,
    Operation.ALTER: _UPDATE,
    Operation.ALTER_CONFIGS: _UPDATE,
    Operation.DELETE: _DELETE,
}
_INFORMATIONAL, _LOW, _MEDIUM = (1, "Informational"), (2, "Low"), (3, "Medium")
_SEVERITIES: Final = {
    What.CHANGE: _INFORMATIONAL,
    What.LOG_IN: _INFORMATIONAL,
    What.FAILED_CHANGE: _INFORMATIONAL,
    What.DRY_REFUSAL: _LOW,
    What.REFUSAL: _MEDIUM,
    What.FAILED_LOG_IN: _MEDIUM,
    What.FAILED_HANDSHAKE: _LOW,
}
_ALLOWED, _DENIED, _OBSERVED = (1, "Allowed"), (2, "Denied"), (3, "Observed")


def line(told: Told, broker_id: int) -> bytes:
    """The line, with its end."""
    event = told.event
    log_in = event.what in _LOG_INS
    made = {
        **_class(AUTHENTICATION if log_in else API_ACTIVITY, _LOG_ON if log_in else _activity(event)),
        **_common(told, broker_id),
        **(_authentication(event) if log_in else _api_activity(event, _names(told))),
    }
    # In ASCII: the control characters behind it would steer the terminal of whoever looks at the file.
    return json.dumps(made, separators=(",", ":")).encode() + b"\n"


def line_of_lost(count: int, since_ms: int, now_ms: int, broker_id: int) -> bytes:
    """The line that says that events were lost."""
    lost = Event(What.FAILED_CHANGE, "", "", "", "SecurityTrail", error=ErrorCode.UNKNOWN_SERVER_ERROR)
    words = f"{count} events are lost: the trail could not be written in time"
    return line(Told(lost._replace(words=words), count, since_ms, now_ms), broker_id)


def _class(uid: int, activity: tuple[int, str]) -> dict[str, Any]:
    name, category, category_name = _CLASSES[uid]
    return {
        "class_uid": uid,
        "class_name": name,
        "category_uid": category,
        "category_name": category_name,
        "activity_id": activity[0],
        "activity_name": activity[1],
        "type_uid": uid * 100 + activity[0],
        "type_name": f"{name}: {activity[1]}",
    }


def _activity(event: Event) -> tuple[int, str]:
    return _OTHER if event.operation is None else _ACTIVITIES.get(event.operation, _OTHER)


def _common(told: Told, broker_id: int) -> dict[str, Any]:
    event = told.event
    severity, succeeded = _SEVERITIES[event.what], event.what in _SUCCEEDED
    made: dict[str, Any] = {
        "time": told.last_ms,
        "severity_id": severity[0],
        "severity": severity[1],
        "status_id": 1 if succeeded else 2,
        "status": "Success" if succeeded else "Failure",
        "status_code": event.error.name,
        "count": told.times,
        "message": _message(event, _names(told)),
        "metadata": {
            "version": OCSF_VERSION,
            "product": {"name": "Cordwood", "vendor_name": "Cordwood", "version": __version__},
            "log_name": "security.trail",
            "profiles": ["security_control"],
        },
        "src_endpoint": {"ip": event.host},
        "dst_endpoint": {"name": f"broker {broker_id}", "svc_name": event.listener},
    }
    if told.times > 1:
        made |= {"start_time": told.first_ms, "end_time": told.last_ms}
    if event.words and not succeeded:
        made["status_detail"] = event.words
    return made


def _names(told: Told) -> tuple[str, ...]:
    return told.names or (told.event.name,)


def _message(event: Event, names: tuple[str, ...]) -> str:
    who = event.principal or "a stranger"
    if event.operation is None:
        return f"{who} {event.what.value}"
    return f"{who} {event.what.value}: {event.operation} of the {event.kind} {', '.join(names)}".rstrip()


def _user(event: Event) -> dict[str, Any]:
    """A principal as OCSF has it: the whole principal is the unique id, the part behind the kind is the name."""
    return {"name": event.principal.partition(":")[2] or event.principal, "uid": event.principal}


def _authentication(event: Event) -> dict[str, Any]:
    action = _ALLOWED if event.what is What.LOG_IN else _DENIED
    return {
        "action_id": action[0],
        "action": action[1],
        "user": _user(event),
        "auth_protocol_id": 99,
        "auth_protocol": event.action,
        "logon_type_id": 3,
        "logon_type": "Network",
        "is_remote": True,
        "service": {"name": "Cordwood"},
    }


def _api_activity(event: Event, names: tuple[str, ...]) -> dict[str, Any]:
    action = _ALLOWED
    if event.what is What.REFUSAL:
        action = _DENIED
    elif event.what is What.DRY_REFUSAL:
        action = _OBSERVED
    made: dict[str, Any] = {
        "action_id": action[0],
        "action": action[1],
        "actor": {"user": _user(event)},
        "api": {
            "operation": event.action,
            "service": {"name": "Cordwood"},
            "response": {"code": int(event.error), "error": event.error.name},
        },
    }
    if event.operation is not None:
        made["unmapped"] = {"right": str(event.operation)}
    if event.kind is not None:
        resources: list[dict[str, Any]] = [{"type": str(event.kind), "name": name} for name in names]
        if event.words and event.what is not What.REFUSAL and names == (event.name,):
            resources[0]["data"] = {"change": event.words}
        made["resources"] = resources
    return made
