/*
 * Heaps: whatever goes in and out, the top is the least, and no spine is long.
 */
#include "daemon/heap.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#define N_NODES 3000

static struct heap_node nodes[N_NODES];
static bool is_in[N_NODES];

static const struct heap_node *least(void)
{
    const struct heap_node *best = NULL;

    for (size_t i = 0; i < N_NODES; i++) {
        if (is_in[i] && (best == NULL || heap_is_before(&nodes[i], best))) {
            best = &nodes[i];
        }
    }
    return best;
}

/* Returns the number of nodes; checks every link and rank on the way. */
static size_t count(const struct heap_node *node, const struct heap_node *parent)
{
    if (node == NULL) {
        return 0;
    }
    uint32_t left = node->left != NULL ? node->left->rank : 0;
    uint32_t right = node->right != NULL ? node->right->rank : 0;
    CHECK(node->parent == parent);
    CHECK(parent == NULL || !heap_is_before(node, parent));
    CHECK_LE(right, left);
    CHECK_EQ(node->rank, right + 1);
    return 1 + count(node->left, node) + count(node->right, node);
}

static void test_the_top_is_the_least(void)
{
    struct heap heap = {NULL};
    size_t n = 0;

    memset(is_in, 0, sizeof(is_in));
    for (unsigned step = 0; step < 20000; step++) {
        size_t i = random_below(N_NODES);

        if (!is_in[i]) {
            nodes[i].key = random_below(50);
            nodes[i].tie = step; /* no two are equal */
            heap_add(&heap, &nodes[i]);
            n++;
        } else if (random_below(3) == 0) {
            heap_change(&heap, &nodes[i], random_below(50), step);
            continue;
        } else {
            heap_remove(&heap, &nodes[i]);
            n--;
        }
        is_in[i] = !is_in[i];
        if (step % 64 == 0) {
            CHECK(heap.top == least());
            CHECK_EQ(count(heap.top, NULL), n);
        }
    }
}

static void test_in_order(void)
{
    struct heap heap = {NULL};

    for (size_t i = 0; i < N_NODES; i++) {
        nodes[i].key = random_u64();
        nodes[i].tie = 0;
        heap_add(&heap, &nodes[i]);
        CHECK_LE(heap.top->rank, 12); /* log2 of 3001 */
    }
    for (uint64_t last = 0; heap.top != NULL;) {
        CHECK_LE(last, heap.top->key);
        last = heap.top->key;
        heap_remove(&heap, heap.top);
    }
}

CHECK_MAIN(CHECK_TEST(test_the_top_is_the_least), CHECK_TEST(test_in_order))
