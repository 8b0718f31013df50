"""Lines in SVG."""

from collections.abc import Mapping, Sequence


def drawing(lines: Mapping[str, Sequence[tuple[float, float]]], caption: str) -> str:
    """Return lines with their names; points are in shares of the width and of the height."""
    shapes = ['<path d="M60,20V210H540" fill="none" stroke="#9498a0"/>']
    for (name, line), color in zip(lines.items(), ("#ff725c", "#4269d0"), strict=False):
        ends = [(60 + 480 * x, 210 - 180 * y) for x, y in line]
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in ends)
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        place = f'x="546" y="{ends[-1][1] + 4:.0f}"'
        shapes.append(f'<text {place} fill="{color}">{name}</text>')
    shapes.append(f'<text x="60" y="230">{caption}</text>')
    form = 'viewBox="0 0 720 240" font-family="sans-serif" font-size="13" style="background:white"'
    return "\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {form}>', *shapes, "</svg>\n"))
