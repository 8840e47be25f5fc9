"""Oscar as its documentation sets it up, for guests. POST /items/ITEM/buy goes through Oscar's own checkout."""
import json, os, sys

import django
import pymysql

pymysql.version_info = (2, 2, 7, "final", 0)  # Django asks for mysqlclient, whose place PyMySQL takes
pymysql.install_as_MySQLdb()

from django.conf import settings
from oscar import defaults

database = "POSTGRES" if "POSTGRES_HOST" in os.environ else "MYSQL"
engines = {"POSTGRES": "django.db.backends.postgresql", "MYSQL": "django.db.backends.mysql"}

parts = (
    "analytics.apps.AnalyticsConfig checkout.apps.CheckoutConfig address.apps.AddressConfig "
    "shipping.apps.ShippingConfig catalogue.apps.CatalogueConfig catalogue.reviews.apps.CatalogueReviewsConfig "
    "communication.apps.CommunicationConfig partner.apps.PartnerConfig basket.apps.BasketConfig "
    "payment.apps.PaymentConfig offer.apps.OfferConfig order.apps.OrderConfig customer.apps.CustomerConfig "
    "search.apps.SearchConfig voucher.apps.VoucherConfig wishlists.apps.WishlistsConfig "
    "dashboard.apps.DashboardConfig dashboard.reports.apps.ReportsDashboardConfig "
    "dashboard.users.apps.UsersDashboardConfig dashboard.orders.apps.OrdersDashboardConfig "
    "dashboard.catalogue.apps.CatalogueDashboardConfig dashboard.offers.apps.OffersDashboardConfig "
    "dashboard.partners.apps.PartnersDashboardConfig dashboard.pages.apps.PagesDashboardConfig "
    "dashboard.ranges.apps.RangesDashboardConfig dashboard.reviews.apps.ReviewsDashboardConfig "
    "dashboard.vouchers.apps.VouchersDashboardConfig dashboard.communications.apps.CommunicationsDashboardConfig "
    "dashboard.shipping.apps.ShippingDashboardConfig")
contrib = "auth contenttypes sessions sites messages staticfiles flatpages"

settings.configure(**{
    **{name: value for name, value in vars(defaults).items() if name.startswith("OSCAR_")},
    **dict(
        SECRET_KEY="only for tests", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SITE_ID=1, USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", STATIC_URL="/static/", OSCAR_ALLOW_ANON_CHECKOUT=True,
        DATABASES={"default": {
            "ENGINE": engines[database], "NAME": os.environ[database + "_DATABASE"], "ATOMIC_REQUESTS": True,
            **{name: os.environ[f"{database}_{name}"] for name in ("HOST", "PORT", "USER", "PASSWORD")},
        }},
        INSTALLED_APPS=[
            *("django.contrib." + name for name in contrib.split()), "oscar.config.Shop",
            *("oscar.apps." + name for name in parts.split()),
            "widget_tweaks", "haystack", "treebeard", "sorl.thumbnail", "easy_thumbnails", "django_tables2",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware", "oscar.apps.basket.middleware.BasketMiddleware",
        ],
        TEMPLATES=[{
            "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
            "OPTIONS": {"context_processors": [
                "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout", "oscar.core.context_processors.metadata",
            ]},
        }],
        HAYSTACK_CONNECTIONS={"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}},
        EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend",
    ),
})
django.setup()

from django.apps import apps
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from oscar.core.loading import get_model


def make_tables():
    call_command("migrate", verbosity=0)
    get_model("address", "Country").objects.create(
        iso_3166_1_a2="GB", printable_name="United Kingdom", name="United Kingdom", is_shipping_country=True)
    get_model("catalogue", "ProductClass").objects.create(id=1, name="Item", track_stock=True)
    get_model("partner", "Partner").objects.create(id=1, name="Warehouse")


# What Oscar tells a buyer if too few units are left.
SHORT = ("no stock available", "a maximum of")


def checkout(item, quantity):
    """Returns where Oscar leads the buyer in the end, and all that it has told them."""
    client = Client()  # has a session of its own
    answers = [
        client.post(f"/basket/add/{item}/", {"quantity": quantity}),
        client.post("/checkout/", {"username": "buyer@example.com", "options": "anonymous"}),
        client.post("/checkout/shipping-address/", {
            "first_name": "A", "last_name": "Buyer", "line1": "1 High Street", "line4": "London", "postcode": "N1 7AA",
            "country": "GB"}),
        client.get("/checkout/shipping-method/"),
        client.get("/checkout/payment-method/"),
        client.get("/checkout/preview/"),
        client.post("/checkout/preview/", {"action": "place_order"}),
    ]
    told = [str(message) for answer in answers for message in get_messages(answer.wsgi_request)]
    return answers[-1].get("Location", ""), told


@csrf_exempt
@transaction.non_atomic_requests
def buy(request, item):
    place, told = checkout(item, json.loads(request.body)["quantity"])
    if "thank-you" in place:
        status = 200
    elif any(text in message for text in SHORT for message in told):
        status = 409
    else:  # such as Django's 400 if it cannot save a session: the order may have been placed nevertheless
        status = 500
    return HttpResponse("\n".join([place, *told]), status=status)


urlpatterns = [path("items/<int:item>/buy", buy), path("", include(apps.get_app_config("oscar").urls[0]))]

if sys.argv[1:] == ["tables"]:
    make_tables()
else:
    import waitress
    waitress.serve(get_wsgi_application(), listen=os.environ["LISTEN"], threads=8)
