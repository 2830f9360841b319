// Asks of the wrapper what PiBench asks of it.
#include "tree_api.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static void check(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "%s\n", what);
        std::exit(1);
    }
}

int main(int argc, char **argv) {
    check(argc == 4, "usage: driver POOL KEY-BYTES VALUE-BYTES");
    tree_options_t options;
    options.pool_path = argv[1];
    options.key_size = std::strtoull(argv[2], nullptr, 10);
    options.value_size = std::strtoull(argv[3], nullptr, 10);
    options.pool_size = 8 << 20;
    options.num_threads = 4;
    std::unique_ptr<tree_api> tree(create_tree(options));
    check(tree != nullptr, "no tree");

    // Numbers as the machine stores them where the wrapper takes them for numbers; elsewhere most significant
    // byte first, at the end of the key, so that the order is the same.
    const bool is_fixed = options.key_size == 8 && options.value_size == 8;
    auto key = [&](uint64_t i) {
        std::string text(options.key_size, '\0');
        if (is_fixed) {
            std::memcpy(text.data(), &i, 8);
        } else {
            for (size_t at = 0; at < 8; at++)
                text[options.key_size - 1 - at] = char(i >> (8 * at));
        }
        return text;
    };
    auto value = [&](uint64_t i) { return std::string(options.value_size, char(i)); };
    constexpr uint64_t MANY = 2000;

    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; thread++)
        threads.emplace_back([&, thread] {
            for (uint64_t i = thread; i < MANY; i += 4)
                check(tree->insert(key(i).data(), options.key_size, value(i).data(), options.value_size), "insert");
        });
    for (auto &thread : threads)
        thread.join();

    std::string found(options.value_size, '\0');
    for (uint64_t i = 0; i < MANY; i++) {
        check(!tree->insert(key(i).data(), options.key_size, value(0).data(), options.value_size), "insert twice");
        check(tree->find(key(i).data(), options.key_size, found.data()) && found == value(i), "find");
    }
    check(!tree->find(key(MANY).data(), options.key_size, found.data()), "find what is absent");
    check(!tree->update(key(MANY).data(), options.key_size, found.data(), options.value_size), "update what is absent");
    check(tree->update(key(300).data(), options.key_size, value(7).data(), options.value_size), "update");
    check(tree->remove(key(301).data(), options.key_size), "remove");
    check(!tree->remove(key(301).data(), options.key_size), "remove twice");

    char *records = nullptr;
    check(tree->scan(key(300).data(), options.key_size, 100, records) == 100, "scan");
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t number = i == 0 ? 300 : 301 + i;
        std::string expected = key(number) + (i == 0 ? value(7) : value(number));
        check(std::string(records + i * expected.size(), expected.size()) == expected, "a record of a scan");
    }
    check(tree->scan(key(MANY - 10).data(), options.key_size, 100, records) == 10, "scan to the end");
    check(tree->scan(key(MANY).data(), options.key_size, 100, records) == 0, "scan beyond the end");
    std::puts("as asked");
    return 0;
}
