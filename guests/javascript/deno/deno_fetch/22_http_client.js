// In place of Deno's HTTP clients: requests go to the host, which has the one client.
class HttpClient {}

module.exports = { HttpClient, HttpClientPrototype: HttpClient.prototype };
