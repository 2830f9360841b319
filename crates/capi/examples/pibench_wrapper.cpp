// The library as an index for PiBench (https://github.com/sfu-dis/pibench): see docs/guide/capi.md.
//
//   c++ -std=c++17 -O2 -shared -fPIC -o libtembo_pibench.so
//       -I PIBENCH/include -I include pibench_wrapper.cpp -ltembo_capi
//
// Keys and values of 8 bytes go to a fixed map, which is the fast one; others to a map of byte strings.
// PiBench's 8-byte keys are numbers as the machine stores them, and so are the keys of a fixed map. With
// TEMBO_DURABILITY=N in the environment (a tembo_durability) the pool has another durability than the file
// offers by itself.
#include "tembo.h"
#include "tree_api.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

// A benchmark has no use for going on after a failure.
bool answer(int status, int no) {
    if (status == TEMBO_OK || status == no)
        return status == TEMBO_OK;
    std::fprintf(stderr, "%s: %s\n", tembo_status_name(status), tembo_last_error());
    std::exit(1);
}

uint64_t number(const char *bytes) {
    uint64_t value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

class fixed_tree : public tree_api {
public:
    explicit fixed_tree(tembo_pool *pool) {
        answer(tembo_fixed_open(pool, "pibench", TEMBO_CREATE, &map_), TEMBO_OK);
    }
    ~fixed_tree() override { tembo_fixed_close(map_); }

    bool find(const char *key, size_t, char *value_out) override {
        uint64_t value;
        if (!answer(tembo_fixed_find(map_, number(key), &value), TEMBO_NOT_FOUND))
            return false;
        std::memcpy(value_out, &value, sizeof value);
        return true;
    }
    bool insert(const char *key, size_t, const char *value, size_t) override {
        return answer(tembo_fixed_insert(map_, number(key), number(value)), TEMBO_EXISTS);
    }
    bool update(const char *key, size_t, const char *value, size_t) override {
        return answer(tembo_fixed_update(map_, number(key), number(value)), TEMBO_NOT_FOUND);
    }
    bool remove(const char *key, size_t) override {
        return answer(tembo_fixed_remove(map_, number(key)), TEMBO_NOT_FOUND);
    }
    int scan(const char *key, size_t, int scan_size, char *&values_out) override {
        static thread_local std::vector<tembo_fixed_record> records;
        records.resize(size_t(scan_size));
        size_t found = 0;
        answer(tembo_fixed_scan(map_, number(key), records.size(), records.data(), &found), TEMBO_OK);
        values_out = reinterpret_cast<char *>(records.data());
        return int(found);
    }

private:
    tembo_fixed *map_ = nullptr;
};

class bytes_tree : public tree_api {
public:
    bytes_tree(tembo_pool *pool, size_t record_bytes, size_t value_bytes)
        : record_bytes_(record_bytes), value_bytes_(value_bytes) {
        answer(tembo_map_open(pool, "pibench", TEMBO_CREATE, &map_), TEMBO_OK);
    }
    ~bytes_tree() override { tembo_map_close(map_); }

    bool find(const char *key, size_t size, char *value_out) override {
        size_t bytes;
        return answer(tembo_map_find(map_, key, size, value_out, value_bytes_, &bytes), TEMBO_NOT_FOUND);
    }
    bool insert(const char *key, size_t key_size, const char *value, size_t value_size) override {
        return answer(tembo_map_insert(map_, key, key_size, value, value_size), TEMBO_EXISTS);
    }
    bool update(const char *key, size_t key_size, const char *value, size_t value_size) override {
        return answer(tembo_map_update(map_, key, key_size, value, value_size), TEMBO_NOT_FOUND);
    }
    bool remove(const char *key, size_t key_size) override {
        return answer(tembo_map_remove(map_, key, key_size), TEMBO_NOT_FOUND);
    }
    int scan(const char *key, size_t key_size, int scan_size, char *&values_out) override {
        static thread_local std::vector<char> buffer;
        buffer.resize(size_t(scan_size) * record_bytes_);
        size_t found = 0, limit = size_t(scan_size);
        answer(tembo_map_scan(map_, key, key_size, limit, buffer.data(), buffer.size(), nullptr, &found), TEMBO_OK);
        values_out = buffer.data();
        return int(found);
    }

private:
    tembo_map *map_ = nullptr;
    size_t record_bytes_, value_bytes_;
};

} // namespace

extern "C" tree_api *create_tree(const tree_options_t &options) {
    tembo_options how;
    std::memset(&how, 0, sizeof how);
    how.struct_bytes = sizeof how;
    how.initial_bytes = options.pool_size;
    if (const char *durability = std::getenv("TEMBO_DURABILITY"))
        how.durability = uint32_t(std::strtoul(durability, nullptr, 10));
    const char *path = options.pool_path.empty() ? "pibench.pool" : options.pool_path.c_str();
    tembo_pool *pool = nullptr;
    if (!answer(tembo_pool_create(path, &how, &pool), TEMBO_EXISTS))
        answer(tembo_pool_open(path, &how, &pool), TEMBO_OK);
    tree_api *tree;
    if (options.key_size == 8 && options.value_size == 8)
        tree = new fixed_tree(pool);
    else
        tree = new bytes_tree(pool, options.key_size + options.value_size, options.value_size);
    // The map keeps the pool open.
    tembo_pool_close(pool);
    return tree;
}
