"""pretix as its documentation sets it up. POST /items/ITEM/buy orders tickets through pretix's own API."""
import json, os, sys
from datetime import timedelta

import pymysql

pymysql.version_info = (2, 2, 7, "final", 0)  # Django asks for mysqlclient, whose place PyMySQL takes
pymysql.install_as_MySQLdb()

os.environ.update({
    "DJANGO_SETTINGS_MODULE": "pretix.settings", "DATA_DIR": "data",
    "PRETIX_PRETIX_URL": "http://testserver", "PRETIX_PRETIX_LOGLEVEL": "ERROR",
    "PRETIX_DJANGO_SECRET": "only for tests",
    "PRETIX_DATABASE_BACKEND": "mysql", "PRETIX_DATABASE_NAME": os.environ["MYSQL_DATABASE"],
    **{"PRETIX_DATABASE_" + name: os.environ["MYSQL_" + name] for name in ("HOST", "PORT", "USER", "PASSWORD")},
})
if sys.argv[1] == "redis":
    os.environ["PRETIX_REDIS_LOCATION"] = os.environ["REDIS_URL"]

import django
from django.conf import settings

django.setup()
settings.EMAIL_BACKEND = settings.EMAIL_CUSTOM_SMTP_BACKEND = "django.core.mail.backends.dummy.EmailBackend"

from django.core.management import call_command
from django.test import Client
from django.utils.timezone import now
from django_scopes import scopes_disabled
from pretix.base.models import Event, Item, Organizer, Quota, Team


class NoMigrations:
    """Makes the tables as the models are, as pretix does for its own tests: there are no data to migrate."""
    def __contains__(self, app):
        return True

    def __getitem__(self, app):
        return None


@scopes_disabled()
def make_tables():
    settings.MIGRATION_MODULES = NoMigrations()
    call_command("migrate", run_syncdb=True, verbosity=0)
    organizer = Organizer.objects.create(id=1, name="Shop", slug="shop")
    team = Team.objects.create(
        organizer=organizer, name="API", all_events=True, can_change_orders=True, can_view_orders=True)
    team.tokens.create(name="API", token="only-for-tests")
    organizer.settings.set("payment_banktransfer__enabled", True)
    event = Event.objects.create(
        id=1, organizer=organizer, name="Event", slug="1", currency="EUR", live=True,
        date_from=now() + timedelta(days=365), plugins="pretix.plugins.banktransfer")
    item = Item.objects.create(id=1, event=event, name="Ticket", default_price=10)
    Quota.objects.create(id=1, event=event, name="Tickets", size=0).items.add(item)


def order(item, quantity):
    """Returns the status of an answer, and what pretix says."""
    response = Client().post(f"/api/v1/organizers/shop/events/{item}/orders/", {
        "email": "buyer@example.com", "locale": "en", "sales_channel": "web", "payment_provider": "banktransfer",
        "positions": [{"item": item, "variation": None}] * quantity,
    }, content_type="application/json", HTTP_AUTHORIZATION="Token only-for-tests")
    told = response.content.decode()
    if response.status_code == 400 and "not enough quota" in told:
        return 409, told
    # 409 means that the lock of the event was not available, and that the transaction was rolled back.
    return {201: 200, 409: 503}.get(response.status_code, 500), told


def serve(environ, start_response):  # POST /items/ITEM/buy {"quantity": N}
    body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    status, told = order(int(environ["PATH_INFO"].split("/")[2]), body["quantity"])
    start_response(str(status) + " ", [("Content-Type", "text/plain")])
    return [told.encode()]


if sys.argv[1:] == ["tables"]:
    make_tables()
else:
    import waitress
    waitress.serve(serve, listen=os.environ["LISTEN"], threads=8)
