// Errors of this package.

/** A request that was refused. A cell that raises is no such error: it is the `error` of its result. */
export class SandboxError extends Error {
  constructor(message, code = "usage", hint = null) {
    super(hint === null ? message : `${message} (${hint})`);
    this.name = "SandboxError";
    this.code = code;
    this.hint = hint;
  }
}

/** A cell that failed, where a value of it was wanted. */
export class CellFailed extends Error {
  constructor(error) {
    super(error.traceback || error.summary);
    this.name = "CellFailed";
    this.error = error;
  }
}

/** The error of a sandbox that is closed, or whose connection has ended. */
export const closed = (message = "the sandbox is closed") => new SandboxError(message, "closed");
