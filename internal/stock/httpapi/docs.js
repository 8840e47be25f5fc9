// validatorUrl is null because Swagger UI would otherwise ask a public server to check the document.
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null });
