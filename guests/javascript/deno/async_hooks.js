// node:async_hooks, as far as classes go that libraries extend. Contexts follow calls, but not promises.
class AsyncResource {
  constructor(type) {
    this.type = type;
  }
  runInAsyncScope(task, self, ...values) {
    return Reflect.apply(task, self, values);
  }
  bind(task, self) {
    return task.bind(self);
  }
  emitDestroy() {
    return this;
  }
  asyncId() {
    return 1;
  }
  triggerAsyncId() {
    return 0;
  }
  static bind(task, _type, self) {
    return self === undefined ? task : task.bind(self);
  }
}

class AsyncLocalStorage {
  constructor() {
    throw kit.unsupported("AsyncLocalStorage");
  }
}

module.exports = {
  AsyncLocalStorage,
  AsyncResource,
  createHook: () => ({ enable() {}, disable() {} }),
  executionAsyncId: () => 1,
  executionAsyncResource: () => ({}),
  triggerAsyncId: () => 0,
};
