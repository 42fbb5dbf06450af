"""Succeed once Prometheus has reached the bridge and all rules and Alertmanager work; run in the bridge's network."""

import json
import sys
import urllib.request


def ask(address: str) -> dict:
    """Return the JSON response of Prometheus or Alertmanager on this host."""
    with urllib.request.urlopen(f"http://127.0.0.1:{address}", timeout=5) as answer:
        return json.load(answer)


targets = ask("9090/api/v1/targets")["data"]["activeTargets"]
rules = [rule for group in ask("9090/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
known = ask("9090/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
configured = ask("9093/api/v2/status")["config"]["original"]
problems = [f"{each['scrapeUrl']}: {each['health']} {each['lastError']}" for each in targets if each["health"] != "up"]
problems += [
    f"{each['name']}: {each['health']} {each.get('lastError', '')}" for each in rules if each["health"] != "ok"
]
if not targets or not rules or len(known) != 1 or "operators" not in configured:
    problems.append(f"{len(targets)} targets, {len(rules)} rules, {len(known)} Alertmanagers")
firing = [rule["name"] for rule in rules if rule.get("state") == "firing"]
found = f"{len(targets)} target up, {len(rules)} rules in order, alerts: {', '.join(firing) or 'none'}"
print("; ".join(problems) or found)
sys.exit(bool(problems))
