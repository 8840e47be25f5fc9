// Medusa as its documentation sets it up, without the admin's pages. shop.js says how it locks.
const { defineConfig } = require("@medusajs/framework/utils")

const env = process.env
const secret = "only for tests"
const locking = { // the module keeps locks in the memory of the process unless it has a provider
  postgres: [{ resolve: "@medusajs/medusa/locking-postgres", id: "locking-postgres", is_default: true }],
  redis: [{
    resolve: "@medusajs/medusa/locking-redis", id: "locking-redis", is_default: true,
    options: { redisUrl: env.REDIS_URL },
  }],
}
module.exports = defineConfig({
  admin: { disable: true },
  projectConfig: {
    databaseUrl: env.POSTGRES_URL, databaseDriverOptions: { ssl: false },
    http: { storeCors: "*", adminCors: "*", authCors: "*", jwtSecret: secret, cookieSecret: secret },
  },
  modules: [{ resolve: "@medusajs/medusa/locking", options: { providers: locking[env.MEDUSA_LOCKING] } }],
})
