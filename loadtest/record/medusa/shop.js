// Medusa with one product, whose Store API is used. node shop.js memory, postgres or redis says where locks are kept;
// node shop.js tables makes the tables. PUT /items/ITEM sets the stock and fills two carts, with one unit and with two.
// POST /items/ITEM/buy completes such a cart, or another one that it fills first. GET /items/ITEM tells the stock.
const { execFileSync } = require("child_process")
const http = require("http")

process.env.MEDUSA_DISABLE_TELEMETRY = "true"
process.env.LOG_LEVEL = "error"
process.env.MEDUSA_LOCKING = process.argv[2] === "tables" ? "postgres" : process.argv[2] // which has a table

const express = require("express")
const { default: load } = require("@medusajs/medusa/loaders/index")
const flows = require("@medusajs/medusa/core-flows")
const { Modules } = require("@medusajs/framework/utils")
const pg = require("pg")

// A process sends a statement when the one before is answered, even on another connection. Medusa sends several at the
// same time, and each order of them would be another schedule to explore. Nothing waits for a statement that locks.
let last = Promise.resolve()
const query = pg.Client.prototype.query
pg.Client.prototype.query = function (statement, ...args) {
  const callback = args.pop() // Medusa's query builder always gives one
  const before = last
  last = new Promise((answered) => {
    before.then(() => {
      query.call(this, statement, ...args, (...result) => {
        answered()
        callback(...result)
      })
      if ((statement.text ?? statement).includes("pg_advisory_xact_lock")) answered()
    })
  })
}

const address = {
  first_name: "A", last_name: "Buyer", address_1: "1 High Street", city: "London", postal_code: "N1",
  country_code: "gb",
}

// seed makes what every order needs, and the variant that all items are copies of.
async function seed(container) {
  const run = async (workflow, input) => (await workflow(container).run({ input })).result
  const link = container.resolve("link")
  const [channel] = await container.resolve(Modules.SALES_CHANNEL).listSalesChannels() // Medusa makes one, with a key
  await run(flows.createRegionsWorkflow, {
    regions: [{ name: "UK", currency_code: "gbp", countries: ["gb"], payment_providers: ["pp_system_default"] }],
  })
  await run(flows.createTaxRegionsWorkflow, [{ country_code: "gb", provider_id: "tp_system" }])
  const [location] = await run(flows.createStockLocationsWorkflow, { locations: [{ name: "Warehouse" }] })
  await run(flows.linkSalesChannelsToStockLocationWorkflow, { id: location.id, add: [channel.id] })
  await link.create({
    [Modules.STOCK_LOCATION]: { stock_location_id: location.id },
    [Modules.FULFILLMENT]: { fulfillment_provider_id: "manual_manual" },
  })
  const fulfillment = container.resolve(Modules.FULFILLMENT)
  const [profile] = await run(flows.createShippingProfilesWorkflow, { data: [{ name: "Default", type: "default" }] })
  const set = await fulfillment.createFulfillmentSets({
    name: "Post", type: "shipping",
    service_zones: [{ name: "UK", geo_zones: [{ country_code: "gb", type: "country" }] }],
  })
  await link.create({
    [Modules.STOCK_LOCATION]: { stock_location_id: location.id },
    [Modules.FULFILLMENT]: { fulfillment_set_id: set.id },
  })
  await run(flows.createShippingOptionsWorkflow, [{
    name: "Post", price_type: "flat", provider_id: "manual_manual", service_zone_id: set.service_zones[0].id,
    shipping_profile_id: profile.id, type: { label: "Post", description: "Post", code: "post" },
    prices: [{ currency_code: "gbp", amount: 5 }], rules: [],
  }])
  await run(flows.createProductsWorkflow, { products: [{
    title: "Item", status: "published", shipping_profile_id: profile.id, sales_channels: [{ id: channel.id }],
    options: [{ title: "Size", values: ["One"] }],
    variants: [{ title: "Item", sku: "item", manage_inventory: true, options: { Size: "One" },
      prices: [{ currency_code: "gbp", amount: 1 }] }],
  }] })
}

const filledCarts = "CREATE TABLE filled_cart (item BIGINT, quantity INT, id TEXT)"

// copy makes an item out of the seeded variant, or resets it. An order reserves units of the inventory level.
const copy = `
  INSERT INTO product_variant (id, title, product_id)
  SELECT 'variant_ITEM', title, product_id FROM product_variant WHERE sku = 'item' ON CONFLICT DO NOTHING;
  INSERT INTO product_variant_price_set (id, variant_id, price_set_id)
  SELECT 'pvps_ITEM', 'variant_ITEM', price_set_id FROM product_variant_price_set
  JOIN product_variant v ON v.id = variant_id WHERE sku = 'item' ON CONFLICT DO NOTHING;
  INSERT INTO inventory_item (id) VALUES ('iitem_ITEM') ON CONFLICT DO NOTHING;
  INSERT INTO product_variant_inventory_item (id, variant_id, inventory_item_id, required_quantity)
  VALUES ('pvitem_ITEM', 'variant_ITEM', 'iitem_ITEM', 1) ON CONFLICT DO NOTHING;
  INSERT INTO inventory_level (id, inventory_item_id, location_id, stocked_quantity, raw_stocked_quantity,
    reserved_quantity, raw_reserved_quantity)
  SELECT 'ilev_ITEM', 'iitem_ITEM', id, STOCK, '{"value": "STOCK", "precision": 20}',
    0, '{"value": "0", "precision": 20}' FROM stock_location
  ON CONFLICT (id) DO UPDATE SET
    stocked_quantity = excluded.stocked_quantity, raw_stocked_quantity = excluded.raw_stocked_quantity,
    reserved_quantity = excluded.reserved_quantity, raw_reserved_quantity = excluded.raw_reserved_quantity;
  DELETE FROM filled_cart WHERE item = ITEM`

// client returns a function that sends a request to the Store API.
async function client(container, app) {
  const [key] = await container.resolve(Modules.API_KEY).listApiKeys({ type: "publishable" })
  const server = await new Promise((done) => { const s = app.listen(0, "127.0.0.1", () => done(s)) })
  return async (path, body = {}) => {
    const response = await fetch(`http://127.0.0.1:${server.address().port}/store${path}`, {
      method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "x-publishable-api-key": key.token },
    })
    const answer = await response.json()
    if (response.ok) return answer
    throw Object.assign(new Error(`${path}: ${response.status} ${JSON.stringify(answer)}`), {
      soldOut: answer.code === "insufficient_inventory" || answer.message?.startsWith("Not enough stock available"),
    })
  }
}

// Shop buys through the Store API.
class Shop {
  async open(container, app) {
    this.ask = await client(container, app)
    this.sql = async (text) => (await container.resolve("__pg_connection__").raw(text)).rows
    const [region] = await container.resolve(Modules.REGION).listRegions()
    const [shipping] = await container.resolve(Modules.FULFILLMENT).listShippingOptions()
    Object.assign(this, { region, shipping })
  }

  async fill(item, quantity) {
    const { cart } = await this.ask("/carts", {
      region_id: this.region.id, email: `buyer-${process.hrtime.bigint()}@example.com`, shipping_address: address,
      billing_address: address, items: [{ variant_id: `variant_${item}`, quantity }],
    })
    await this.ask(`/carts/${cart.id}/shipping-methods`, { option_id: this.shipping.id })
    const { payment_collection: payment } = await this.ask("/payment-collections", { cart_id: cart.id })
    await this.ask(`/payment-collections/${payment.id}/payment-sessions`, { provider_id: "pp_system_default" })
    return cart.id
  }

  async set(item, stock) {
    await this.sql(copy.replaceAll("ITEM", item).replaceAll("STOCK", stock))
    for (const quantity of [1, 2]) {
      if (quantity > stock) continue
      const id = await this.fill(item, quantity)
      await this.sql(`INSERT INTO filled_cart VALUES (${item}, ${quantity}, '${id}')`)
    }
  }

  async stock(item) {
    const [level] = await this.sql(
      `SELECT stocked_quantity - reserved_quantity AS stock FROM inventory_level WHERE id = 'ilev_${item}'`)
    return level.stock
  }

  async buy(item, quantity) {
    const [filled] = await this.sql(
      `DELETE FROM filled_cart WHERE item = ${item} AND quantity = ${quantity} RETURNING id`)
    const result = await this.ask(`/carts/${filled?.id ?? await this.fill(item, quantity)}/complete`)
    if (result.type !== "order") throw new Error(JSON.stringify(result))
  }
}

// answer throws an error if it is not known whether units were sold.
async function answer(shop, method, item, body) {
  switch (method) {
    case "GET": return [200, { stock: Number(await shop.stock(item)) }]
    case "PUT": return [200, await shop.set(item, body.stock)]
  }
  try {
    await shop.buy(item, body.quantity)
  } catch (error) {
    if (!error.soldOut) throw error
    return [409, error.message]
  }
  return [200]
}

async function main() {
  const tables = process.argv[2] === "tables"
  if (tables) {
    execFileSync(process.execPath, [require.resolve("@medusajs/cli/cli.js"), "db:migrate"], { cwd: __dirname })
  }
  const app = express(), shop = new Shop()
  const { container } = await load({ directory: __dirname, expressApp: app })
  if (tables) {
    await seed(container)
    await container.resolve("__pg_connection__").raw(filledCarts)
    process.exit()
  }
  await shop.open(container, app)
  const [host, port] = process.env.LISTEN.split(":")
  http.createServer(async (request, response) => {
    let body = ""
    for await (const part of request) body += part
    const item = Number(request.url.split("/")[2])
    const [status, result] = await answer(shop, request.method, item, JSON.parse(body || "{}"))
      .catch((error) => [500, error.message])
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(result ?? {}))
  }).listen(+port, host)
}

main()
