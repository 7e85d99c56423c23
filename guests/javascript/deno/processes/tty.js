// node:tty: nothing is a terminal.
const refuse = (what) =>
  class {
    constructor() {
      throw kit.unsupported(what);
    }
  };

module.exports = { isatty: () => false, ReadStream: refuse("tty.ReadStream"), WriteStream: refuse("tty.WriteStream") };
