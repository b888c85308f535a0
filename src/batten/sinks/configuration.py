"""The sinks of a home, from settings, variables and the subscriptions of a service."""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.outcomes import Outcome
from batten.sinks.bus.environment import PASSWORD, SOURCE, TOKEN, URL, USER, bus_status
from batten.sinks.contract import Sink
from batten.sinks.otel.environment import OtelSettings, otel_target
from batten.sinks.store import SinkStore
from batten.sinks.webhooks.fold import TYPES as WEBHOOK_TYPES
from batten.sinks.webhooks.fold import WebhookFold
from batten.sinks.webhooks.subscription import (
    Subscription,
    Subscriptions,
    WebhookEvent,
    check_receiver,
    check_workspaces,
    secrets_of,
    sink_name,
)
from batten.sinks.webhooks.transport import WebhookTransport
from batten.tools.addresses import Allowed

TELL_WITHIN_S = 2.0
EVENT_BUS = "event-bus"
OTEL = "otel"
GIVE_UP_S = 72 * 3600.0
"""The age at which a webhook's message becomes a dead letter."""


class BusSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[sinks.event_bus]`; a variable of the environment beats each of them."""

    url: str = ""
    token: str = ""
    user: str = ""
    password: str = ""
    source: str = ""


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[sinks.webhooks.NAME]`."""

    url: str
    secret: str | tuple[str, ...] = ()
    """One, or several during a rotation: each signs."""
    events: tuple[WebhookEvent, ...] = ()
    active: bool = True
    body: Literal["thin", "full"] = "full"
    tasks: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class SinkSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table `[sinks]`."""

    event_bus: BusSettings = BusSettings()
    webhooks: dict[str, WebhookSettings] = {}
    otel: OtelSettings | None = None
    allow: tuple[str, ...] = ()
    """Hosts and ranges that webhooks may go to although they are not public."""
    tell_within_s: float = TELL_WITHIN_S
    """How long `batten -p` may take to tell its sinks before it ends."""


def read_sinks(settings: Mapping[str, Any]) -> SinkSettings:
    """The table, checked. A text that begins with `$` names a variable."""
    try:
        found = msgspec.convert(settings, SinkSettings)
        Allowed(found.allow)
    except (msgspec.ValidationError, CallerError) as error:
        raise CallerError(f"the settings of sinks: {error}", code="config") from None
    return found


def expanded(text: str, environ: Mapping[str, str], what: str) -> str:
    """`$NAME` as the value of that variable; any other text as it is."""
    if not text.startswith("$"):
        return text
    value = environ.get(text[1:], "")
    if not value:
        raise CallerError(f"{what} names the variable {text}, which is not set", code="config")
    return value


def configured_sinks(
    settings: SinkSettings, environ: Mapping[str, str], store: SinkStore, home: str
) -> list[Sink]:
    """Every sink that is on now."""
    found: list[Sink] = []
    bus = event_bus(settings.event_bus, environ)
    if bus is not None:
        found.append(bus)
    otel = open_telemetry(settings.otel, environ)
    if otel is not None:
        found.append(otel)
    subscribed = [
        *(of_settings(name, one, environ) for name, one in settings.webhooks.items()),
        *Subscriptions(store, home).all(notes=True),
    ]
    found += [webhook(one, settings.allow, store) for one in subscribed if one.active]
    return found


def open_telemetry(settings: OtelSettings | None, environ: Mapping[str, str]) -> Sink | None:
    """The sink of traces and metrics; None while it is off."""
    target = otel_target(settings, environ)
    if target is None:
        return None
    from batten.sinks.otel.fold import TYPES, OtelFold
    from batten.sinks.otel.transport import OtelTransport

    headers = {
        kind: {
            name: expanded(value, environ, f"sinks.otel.headers.{name}")
            for name, value in given.items()
        }
        for kind, given in target.headers.items()
    }
    for url in (target.traces_url, target.metrics_url):
        try:
            if url:
                check_receiver(url)
        except CallerError as error:
            raise CallerError(f"OpenTelemetry's endpoint {url}: {error}", code="config") from None
    return Sink(
        name=OTEL,
        version=version_of(target, headers),
        fold=partial(
            OtelFold,
            service=target.service,
            plane=target.plane,
            has_traces=bool(target.traces_url),
            has_metrics=bool(target.metrics_url),
            resource=_clean(target.resource, environ),
        ),
        types=TYPES,
        connect=partial(OtelTransport, target, headers),
    )


def _clean(resource: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The attributes without secrets of the environment."""
    if not resource:
        return {}
    from batten.redact.redactor import Redactor

    authored = Redactor.from_environment(environ).authored
    return {name: authored.text(value) for name, value in resource.items()}


def of_settings(name: str, given: WebhookSettings, environ: Mapping[str, str]) -> Subscription:
    """A subscription that the settings name."""
    what = f"sinks.webhooks.{name}"
    secrets = (given.secret,) if isinstance(given.secret, str) else given.secret
    if not secrets:
        raise CallerError(f"{what} needs a `secret`: a text, or $NAME of a variable", code="config")
    try:
        check_receiver(given.url)
        check_workspaces(given.workspaces)
        signing = secrets_of([expanded(one, environ, what) for one in secrets])
    except CallerError as error:
        raise CallerError(f"{what}: {error}", code="config") from None
    return Subscription(
        id=name,
        url=given.url,
        events=given.events,
        secrets=signing,
        active=given.active,
        body=given.body,
        tasks=given.tasks,
        workspaces=given.workspaces,
        outcomes=given.outcomes,
    )


def webhook(subscription: Subscription, allow: Sequence[str], store: SinkStore) -> Sink:
    """The sink of one subscription."""
    return Sink(
        name=sink_name(subscription.id),
        version=version_of(subscription, allow),
        fold=partial(WebhookFold, subscription=subscription),
        types=WEBHOOK_TYPES,
        connect=partial(WebhookTransport, subscription, store.now, allow),
        logs=True,
        in_flight=8,
        give_up_s=GIVE_UP_S,
    )


def bus_environment(settings: BusSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with the settings in place of variables that are not set."""
    filled = dict(environ)
    pairs = (
        (URL, settings.url),
        (TOKEN, settings.token),
        (USER, settings.user),
        (PASSWORD, settings.password),
        (SOURCE, settings.source),
    )
    for names, value in pairs:
        if value and not any(environ.get(name, "").strip() for name in names):
            filled[names[0]] = expanded(value, environ, f"event_bus ({names[0]})")
    return filled


def event_bus(settings: BusSettings, environ: Mapping[str, str]) -> Sink | None:
    """The sink of the event bus; None while it is off or has no address."""
    filled = bus_environment(settings, environ)
    status = bus_status(filled)
    if not status.publishes:
        return None
    from batten.sinks.bus.environment import credentials_of
    from batten.sinks.bus.fold import TYPES, BusFold
    from batten.sinks.bus.transport import BusTransport

    credentials = credentials_of(filled)
    return Sink(
        name=EVENT_BUS,
        version=version_of(credentials, status.source),
        fold=partial(BusFold, source=status.source, user=environ.get("USER", "")),
        types=TYPES,
        connect=partial(BusTransport, credentials),
        in_flight=32,
    )


def version_of(*parts: Any) -> str:
    """A digest of a configuration, secrets included but not readable."""
    return sha256(msgspec.json.encode(parts)).hexdigest()
