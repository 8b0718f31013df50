"""Hosts, trees and drains as commands show and change them, and the checks of doctor."""
