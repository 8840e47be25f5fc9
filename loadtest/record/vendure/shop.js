// Vendure as its documentation installs it, with one product. POST /items/ITEM/buy goes through Vendure's own Shop API.
const http = require("http")
const core = require("@vendure/core")
const { populateInitialData } = require("@vendure/core/cli")

const tables = process.argv[2] === "tables"
const env = process.env

const config = {
  apiOptions: { hostname: "127.0.0.1", port: 0, adminApiPath: "admin-api", shopApiPath: "shop-api" },
  authOptions: {
    tokenMethod: "bearer", requireVerification: false,
    superadminCredentials: { identifier: "superadmin", password: "only for tests" },
    cookieOptions: { secret: "only for tests" },
  },
  dbConnectionOptions: {
    type: "mysql", host: env.MYSQL_HOST, port: +env.MYSQL_PORT, username: env.MYSQL_USER, password: env.MYSQL_PASSWORD,
    database: env.MYSQL_DATABASE, synchronize: tables, logging: false,
  },
  paymentOptions: { paymentMethodHandlers: [core.dummyPaymentHandler] },
  logger: new core.DefaultLogger({ level: core.LogLevel.Warn }),
  plugins: [],
}

// seed makes what every order needs, and the variant that all items are copies of.
async function seed(app) {
  await populateInitialData(app, {
    defaultLanguage: "en", defaultZone: "Europe", countries: [{ name: "United Kingdom", code: "GB", zone: "Europe" }],
    taxRates: [{ name: "Standard", percentage: 20 }], shippingMethods: [{ name: "Post", price: 500 }],
    paymentMethods: [{
      name: "Dummy", handler: { code: "dummy-payment-handler", arguments: [{ name: "automaticSettle", value: "true" }] },
    }],
    collections: [],
  })
  const ctx = await app.get(core.RequestContextService).create({ apiType: "admin" })
  const product = await app.get(core.ProductService).create(ctx, {
    enabled: true, translations: [{ languageCode: "en", name: "Item", slug: "item", description: "" }],
  })
  await app.get(core.ProductVariantService).create(ctx, [{
    productId: product.id, sku: "item", price: 100, trackInventory: "TRUE", stockOnHand: 10,
    translations: [{ languageCode: "en", name: "Item" }],
  }])
}

// buyer is a client of the Shop API with a session of its own.
function buyer(url) {
  let token
  return async (query, variables) => {
    const response = await fetch(url, {
      method: "POST", body: JSON.stringify({ query, variables }),
      headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
    })
    token = response.headers.get("vendure-auth-token") ?? token
    const { data, errors } = await response.json()
    if (errors) throw new Error(errors[0].message)
    return Object.values(data)[0]
  }
}

const orderOr = "__typename ... on Order { state } ... on ErrorResult { errorCode }"

// buy returns why too few units are left, or nothing. It throws any other error: whether units were sold is not known.
async function buy(url, item, quantity) {
  const ask = buyer(url)
  const steps = [
    [`mutation($id: ID!, $n: Int!) { addItemToOrder(productVariantId: $id, quantity: $n) { ${orderOr} } }`,
      { id: item, n: quantity }],
    [`mutation { setCustomerForOrder(input: { firstName: "A", lastName: "Buyer",
      emailAddress: "buyer-${process.hrtime.bigint()}@example.com" }) { ${orderOr} } }`],
    [`mutation { setOrderShippingAddress(input: { streetLine1: "1 High Street", countryCode: "GB" }) { ${orderOr} } }`],
    [`mutation { setOrderShippingMethod(shippingMethodId: ["1"]) { ${orderOr} } }`],
    [`mutation { transitionOrderToState(state: "ArrangingPayment") {
      ${orderOr} ... on OrderStateTransitionError { transitionError } } }`],
    [`mutation { addPaymentToOrder(input: { method: "dummy", metadata: {} }) { ${orderOr} } }`],
  ]
  for (const [query, variables] of steps) {
    const result = await ask(query, variables)
    // A step to another state tells all its errors in the same way, even that the connection to the database was cut. If
    // too few units are left, the first step adds those to the order; the buyer stops there.
    const why = result?.transitionError ?? result?.errorCode
    if (why === "INSUFFICIENT_STOCK_ERROR" || why?.includes("insufficient stock")) return why
    if (why) throw new Error(why)
    if (result?.state === "PaymentSettled") return
  }
  throw new Error("no payment was settled")
}

async function main() {
  const app = await core.bootstrap(config)
  if (tables) {
    await seed(app)
    process.exit()
  }
  const url = `http://127.0.0.1:${app.getHttpServer().address().port}/shop-api`
  const [host, port] = env.LISTEN.split(":")
  http.createServer(async (request, response) => { // POST /items/ITEM/buy {"quantity": N}
    let body = ""
    for await (const part of request) body += part
    const why = await buy(url, request.url.split("/")[2], JSON.parse(body).quantity).catch((error) => error)
    response.statusCode = why instanceof Error ? 500 : why ? 409 : 200
    response.end(String(why ?? "sold"))
  }).listen(+port, host)
}

main()
