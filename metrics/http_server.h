// SPDX-License-Identifier: Apache-2.0
// A small HTTP server for one page. One thread serves all connections and waits for none of them:
// each has a deadline, and where there are too many the oldest one makes room.
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
  // Answers GET of the path with the text that `page` returns on the server's thread; nothing if
  // there is an error, which the client sees as 500. Sets the port of the address if that is 0.
  using Page = std::function<Result<std::string>()>;
  static Result<std::unique_ptr<HttpServer>> start(Address& address, std::string path, Page page);
  // Waits for a page that is being made, and closes all connections. In a forked child, which has
  // no thread of the server, it only closes them.
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
