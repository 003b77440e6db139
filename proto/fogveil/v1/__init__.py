"""The protocol, version 1: stubs made from the .proto files beside them by `make protocol`."""
