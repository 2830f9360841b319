// The interface by which PiBench loads an index, as far as the wrapper needs it: a stand-in for PiBench's own
// header of this name, so that the wrapper is compiled and run where PiBench is not.
#pragma once

#include <cstddef>
#include <string>

struct tree_options_t {
    size_t key_size = 8;
    size_t value_size = 8;
    std::string pool_path = "";
    size_t pool_size = 0;
    size_t num_threads = 1;
};

class tree_api {
public:
    virtual ~tree_api() {}
    virtual bool find(const char *key, size_t size, char *value_out) = 0;
    virtual bool insert(const char *key, size_t key_size, const char *value, size_t value_size) = 0;
    virtual bool update(const char *key, size_t key_size, const char *value, size_t value_size) = 0;
    virtual bool remove(const char *key, size_t key_size) = 0;
    virtual int scan(const char *key, size_t key_size, int scan_size, char *&values_out) = 0;
};

extern "C" tree_api *create_tree(const tree_options_t &options);
