// SPDX-License-Identifier: Apache-2.0
// A small HTTP server for one page. One thread serves all connections and never waits for a single
// one. Each connection has a deadline, and if there are too many, the oldest is closed.
#pragma once

#include <yard/status.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "address.h"

namespace yard::metrics_detail {

class HttpServer {
 public:
  // Serves the path with the text that `page` returns. The server's thread calls `page`, and the
  // client sees its errors as status 500. If the port of the address is 0, sets it to the chosen
  // port.
  using Page = std::function<Result<std::string>()>;
  static Result<std::unique_ptr<HttpServer>> start(Address& address, std::string path, Page page);
  // Waits for a page that is being made, and closes all connections. A forked child does not have
  // the server's thread, so there the destructor only closes the listening socket.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
  const int process_;
};

}  // namespace yard::metrics_detail
