"""The graph of a project as text and as SVG."""

from xml.etree import ElementTree

from cordwood.cli.pipeline.drawn_graph import Graph, Node, svg, tree

GRAPH = Graph(
    {
        "price-orders": Node(
            "price-orders",
            {"orders": ""},
            ["orders.priced", "orders.other"],
            ["orders"],
            "v2",
            2,
            is_running=True,
            lag=1200,
            rows_a_second=830.4,
            quarantined=1,
        ),
        "big-orders": Node("big-orders", {"orders.priced": "price-orders"}, ["big"], [], "v1", 1, lag=0),
        "totals": Node(
            "totals",
            {"big": "big-orders", "orders.priced": "price-orders", "rates": ""},
            [],
            ["totals"],
            trouble=["<late> & wrong"],
        ),
    }
)


def test_a_tree_tells_each_pipeline_once_and_where_else_it_reads() -> None:
    assert list(tree(GRAPH)) == [
        "orders",
        "└─ price-orders  v2 runs, lag 1,200, 830 rows/s, 1 record in quarantine",
        "   ├─ topic orders.other",
        "   ├─ table orders",
        "   ├─ orders.priced → big-orders  v1 stands still, lag 0",
        "   │  └─ big → totals  has not run, in trouble",
        "   │     └─ table totals",
        "   └─ orders.priced → totals  (above)",
        "rates",
        "└─ totals  (above)",
    ]


def test_a_cycle_is_drawn_all_the_same() -> None:
    circle = Graph({"a": Node("a", {"y": "b"}, ["x"], []), "b": Node("b", {"x": "a"}, ["y"], [])})
    assert list(tree(circle)) == ["└─ a  has not run", "   └─ x → b  has not run", "      └─ y → a  (above)"]
    ElementTree.fromstring(svg(circle))


def test_an_svg_has_all_pipelines_outputs_and_troubles_and_needs_nothing_else() -> None:
    drawn = svg(GRAPH)
    root = ElementTree.fromstring(drawn)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for wanted in (
        "orders",
        "price-orders",
        "big-orders",
        "totals",
        "rates",
        "v2 runs, lag 1,200",
        "orders.priced",
        "big",
    ):
        assert wanted in texts
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "totals; has not run; in trouble; <late> & wrong" in titles
    assert "href" not in drawn
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert GRAPH.column("price-orders") < GRAPH.column("big-orders") < GRAPH.column("totals")


def test_nothing_is_drawn_of_nothing() -> None:
    assert list(tree(Graph({}))) == []
    ElementTree.fromstring(svg(Graph({})))
