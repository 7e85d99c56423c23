// In place of Deno's location: there is no page, so relative addresses have no base.
module.exports = { getLocationHref: () => undefined };
